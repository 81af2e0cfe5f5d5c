"""Two tests of a config that need no study: a learning-rate range test, and the largest batch that fits.

Begin with `rates.py` and `largest_batch.py`, the commands. Each runs jobs of the queue (`followed_job.py`) with a
config cut to a few updates (`tuning_config.py`).
"""
