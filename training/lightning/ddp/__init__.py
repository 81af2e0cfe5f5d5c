"""DDP as Lightning has it, with forked workers: `ddp.py` is the strategy, `ddp_nodes.py` its nodes, `evaluation.py` how
several processes share a validation.
"""
