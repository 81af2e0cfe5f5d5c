"""Workers on other nodes: frames over TCP, a proxy for each worker beside the shards, and the worker's own end.

From the ground up: `wire` (frames), `handshake` (authentication), `acceptor` and `channel` (the two sides of a
connection), `version_mirror` (the run's memory on a worker's node), `worker_proxy` and `remote_end` (who answers calls,
and who makes them), `connection_handoff` (one port for all), `mailbox` (messages between monitors).
"""
