"""What the processes of a run know of each other.

Begin with `run.py` (what they share) and `admission.py` (who may begin, whose gradient is admitted).
`worker_messages.py` is for what they tell each other beside gradients, `measures.py` for what is counted.
"""
