"""DDP as Lightning has it, with forked workers.

Begin with `ddp.py`, the strategy. `ddp_nodes.py` has its nodes, `evaluation.py` how processes share a validation.
"""
