"""Data sets as LightningDataModules, named below, and what a data set of one's own can build on.

Begin with `digits.py`, the smallest, and `module.py`, the base of the image data sets. `dataset.py` reads files and the
Hugging Face Hub.
"""

from scalebook.training.zoo.data.dataset import Dataset
from scalebook.training.zoo.data.digits import Digits
from scalebook.training.zoo.data.docstrings import Docstrings
from scalebook.training.zoo.data.messages import Messages
from scalebook.training.zoo.data.module import DataError, ImageDataModule, ImageSpec, LabelledImages
from scalebook.training.zoo.data.parallel_text import ParallelText
from scalebook.training.zoo.data.photo_patches import PhotoPatches

__all__ = [
    "DataError",
    "Dataset",
    "Digits",
    "Docstrings",
    "ImageDataModule",
    "ImageSpec",
    "LabelledImages",
    "Messages",
    "ParallelText",
    "PhotoPatches",
]
