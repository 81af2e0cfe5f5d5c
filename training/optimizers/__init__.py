"""Optimizers for large batches, each layer with a rate of its own: `LARS` and `LAMB`."""

from training.optimizers.lamb import LAMB
from training.optimizers.lars import LARS

__all__ = ["LAMB", "LARS"]
