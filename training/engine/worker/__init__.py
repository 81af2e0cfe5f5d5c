"""The worker's end: joining, pulling, pushing, and which worker takes which batch.

Begin with `join.py` and `client.py`. `worker_end.py` is all that a trainer knows of the engine, `replica.py` the
worker's copy of the parameters, `cursor.py` who takes which batch, `local_client.py` a worker that makes steps itself.
"""

__all__ = ["worker_end"]
