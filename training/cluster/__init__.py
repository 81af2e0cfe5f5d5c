"""Jobs on the nodes of a Ray cluster: an agent on each node, and one daemon here. Only these two ever import Ray.

Begin with `ray_executor.py` and `ray_launcher.py`, which leave what they want in `cluster_spool.py`;
`cluster_daemon.py` reaches the nodes, by a `node_connection.py` each; `agent.py` starts jobs there.
`outgoing_files.py` and `incoming_files.py` carry what a job needs and writes.
"""
