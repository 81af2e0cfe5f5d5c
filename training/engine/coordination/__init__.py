"""Shared state of a run's processes: which worker may begin, which gradient is admitted, membership, and measures.

Begin with `run.py` (what they share) and `admission.py` (who may begin, whose gradient is admitted).
`worker_messages.py` is for what they tell each other beside gradients, `measures.py` has the types of measured values.
"""

__all__ = ["measures"]
