"""Shared state of a run's processes: which worker may begin, which gradient is admitted, membership, and measures."""
