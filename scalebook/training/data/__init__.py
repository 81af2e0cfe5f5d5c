"""Data sets as LightningDataModules, named below, and what a data set of one's own can build on."""

from scalebook.training.data.dataset import Dataset
from scalebook.training.data.digits import Digits
from scalebook.training.data.docstrings import Docstrings
from scalebook.training.data.messages import Messages
from scalebook.training.data.module import DataError, ImageDataModule, ImageSpec, LabelledImages
from scalebook.training.data.parallel_text import ParallelText
from scalebook.training.data.photo_patches import PhotoPatches

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
