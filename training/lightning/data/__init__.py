"""The training data of asynchronous workers: each takes the next batch that no other has taken.

Begin with `data_sharing.py`; `epoch_order.py` defines the batches, `batch_queue.py` says who has them.
"""
