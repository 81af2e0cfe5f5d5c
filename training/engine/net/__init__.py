"""Workers on other nodes: frames over TCP, a proxy for each beside the shards, and the end of such a worker.

Begin with `remote_end.py` (the worker's end) and `worker_proxy.py` (its proxy). From the ground up: `wire.py`
(frames), `handshake.py` (who may come in), `acceptor.py` and `channel.py` (the two sides of a connection),
`version_mirror.py` (the run's memory as another node has it), `connection_handoff.py` (one port for all),
`mailbox.py` (what the monitors of nodes tell each other).
"""
