"""Models, data sets and optimizers that ship, each an example of what a person's own can be.

Begin with `models/classifiers.py` and `data/digits.py`; `data/module.py` and `models/image_model.py` are the bases
for one's own.
"""

from typing import TYPE_CHECKING

from scalebook.training.lazy import interface

if TYPE_CHECKING:
    from scalebook.training.zoo import data, models, optimizers
    from scalebook.training.zoo.shuffle import EpochShuffle, shuffled_by_epochs
    from scalebook.training.zoo.skew import SkewedSampler

__all__ = ["EpochShuffle", "SkewedSampler", "data", "models", "optimizers", "shuffled_by_epochs"]

__getattr__ = interface(__name__)
