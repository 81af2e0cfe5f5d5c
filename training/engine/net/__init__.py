"""Workers on other nodes: frames over TCP, a proxy for each worker beside the shards, and the worker's own end.

Begin with `remote_end.py` (the worker's end) and `worker_proxy.py` (its proxy, which carries out `worker_calls.py`).
From the ground up: `wire.py` (frames), `handshake.py` (authentication), `acceptor.py` and `channel.py` (the two sides
of a connection), `version_mirror.py` (the run's memory on a worker's node), `connection_handoff.py` (one port for all),
`mailbox.py` (messages between monitors). Calls, to be read in this order: `call_protocol.py` (their form),
`worker_calls.py` (all of them), `gradient_calls.py` (pushes and pulls), `table_calls.py` (of sparse tables).
"""
