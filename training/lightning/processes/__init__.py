"""The processes of any strategy: forked, watched, ended, on one node or several.

Begin with `strategy_launcher.py`, what Lightning calls. `run_workers.py` and `forked.py` start them, `process_watch.py`
notices who has ended or died, `peer_monitor.py` and `node_monitors.py` do so between nodes.
"""
