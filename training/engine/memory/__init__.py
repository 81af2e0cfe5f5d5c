"""Memory that processes share, with locks and events, and parameters that are views into it.

Begin with `region.py` (the counters of a run) and `layout.py` (where each tensor lies). `lock.py` outlives its owner's
death; `device.py` alone copies to and from a GPU.
"""
