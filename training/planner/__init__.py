"""The planner: how fast a system would train with more workers, where adding them stops helping, and why.

Begin with `answering.py`: from a `Question` about a `Profile` (what a system is made of) to an `Answer`. `play.py`
plays a run's timing on the engine itself, `closed_forms.py` and `all_reduce.py` need no play, `measuring.py` measures
the profile of a config on this machine. What the browser side uses imports no torch.
"""
