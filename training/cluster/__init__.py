"""Jobs on the nodes of a Ray cluster: an agent on each node, and one daemon here. Only these two import Ray.

Begin with `ray_executor.py` and `ray_launcher.py`, which leave requests in the spool (`cluster_spool.py`);
`cluster_daemon.py` connects to the nodes, with a `node_connection.py` for each; `agent.py` starts jobs there.
`outgoing_files.py` and `incoming_files.py` carry what a job needs and writes.
"""
