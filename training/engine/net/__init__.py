"""Workers on other nodes: frames over TCP, a proxy for each worker beside the shards, and the worker's own end.

Begin with `remote_end.py` (the worker's end) and `worker_proxy.py` (its proxy, which carries out `calls.py`). From the
ground up: `wire.py` (frames), `handshake.py` (authentication), `acceptor.py` and `channel.py` (the two sides of a
connection), `version_mirror.py` (the run's memory on a worker's node), `connection_handoff.py` (one port for all),
`mailbox.py` (messages between monitors). Calls: `call_protocol.py`, `calls.py`, `engine_calls.py`, `table_calls.py`,
to be read in this order.
"""
