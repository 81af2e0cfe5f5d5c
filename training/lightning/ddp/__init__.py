"""Lightning's DDP with forked workers.

Begin with `ddp.py`, the strategy. `ddp_nodes.py` has its monitors on several nodes; `evaluation.py` shares a validation
between processes.
"""
