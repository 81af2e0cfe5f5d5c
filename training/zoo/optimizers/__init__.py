"""Optimizers for large batches, each layer with a rate of its own: `LARS` and `LAMB`."""

from scalebook.training.zoo.optimizers.lamb import LAMB
from scalebook.training.zoo.optimizers.lars import LARS

__all__ = ["LAMB", "LARS"]
