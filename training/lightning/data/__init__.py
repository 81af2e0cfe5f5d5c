"""The training data of workers that do not wait for each other: each takes the next batch that nobody has taken.

Begin with `data_sharing.py`; `epoch_order.py` says what the batches are, `batch_claims.py` whose they are.
"""
