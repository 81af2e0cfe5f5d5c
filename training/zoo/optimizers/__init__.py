"""Optimizers for large batches, in which each layer has a rate of its own.

Begin with `layerwise.py`, what `LARS` and `LAMB` share.
"""

from scalebook.training.zoo.optimizers.lamb import LAMB
from scalebook.training.zoo.optimizers.lars import LARS

__all__ = ["LAMB", "LARS"]
