"""Jobs as processes of this machine, forked from a process that has imported everything.

Begin with `local_launcher.py`, which the supervisor asks. `fork_server.py` is the process that is forked from, and
`fork_server_client.py` the supervisor's end of it. `local_executor.py` finds jobs and ends them.
"""
