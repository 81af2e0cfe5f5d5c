"""Models as LightningModules, named below, and the bases of those of images.

Begin with `classifiers.py`, the smallest, and `image_model.py`, the base of all models of images.
"""

from scalebook.training.zoo.models.classifiers import Classifier, ConvClassifier, MLPClassifier
from scalebook.training.zoo.models.image_model import ImageModel
from scalebook.training.zoo.models.pixel_cnn import PixelCNN
from scalebook.training.zoo.models.ranker import Ranker
from scalebook.training.zoo.models.translator import Translator

__all__ = [
    "Classifier",
    "ConvClassifier",
    "ImageModel",
    "MLPClassifier",
    "PixelCNN",
    "Ranker",
    "Translator",
]
