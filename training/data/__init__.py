"""Data sets as LightningDataModules: `Digits`, `MNIST`, `CIFAR10`, and what a data set of one's own can build on."""

from training.data.cifar10 import CIFAR10
from training.data.digits import Digits
from training.data.errors import DataError
from training.data.images import ImageSpec, LabelledImages
from training.data.mnist import MNIST
from training.data.module import ImageDataModule

__all__ = ["CIFAR10", "MNIST", "DataError", "Digits", "ImageDataModule", "ImageSpec", "LabelledImages"]
