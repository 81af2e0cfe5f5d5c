"""Optimizers for large batches, in which each layer has a rate of its own.

Begin with `layerwise.py`, what `LARS` and `LAMB` share.
"""

from scalebook.training.zoo.optimizers.layerwise import LAMB, LARS

__all__ = ["LAMB", "LARS"]
