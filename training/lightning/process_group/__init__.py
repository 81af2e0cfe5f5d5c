"""Workers that are forked and meet in a process group of torch: what DDP and ModelParallel share.

Begin with `forked_group.py`. `group_nodes.py` has its monitors on several nodes; `evaluation.py` shares a validation
between processes; `neighbours.py` sends tensors and plain values.
"""
