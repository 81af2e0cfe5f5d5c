"""Memory that processes share, locks and events in it, and parameters that are views into it.

Begin with `region.py` (the counters of a run) and `layout.py` (where each tensor lies). `lock.py` outlives its owner's
death; `device.py` alone copies to and from a GPU.
"""
