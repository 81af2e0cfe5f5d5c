"""Gradients become updates: where an optimizer lies in memory, how gradients are averaged, and who applies them.

Begin with `shard.py` (versions, and how the next one is made) and `hosts.py` (who applies a gradient: the worker, or a
server, whose body is `server.py`). `gradient_transfer.py` copies and encodes gradients, `rounds.py` averages several,
`optimizer_partition.py` is one optimizer in one process, `store_layout.py` says where it lies, `rebuilt_optimizer.py`
steps the person's own optimizer.
"""
