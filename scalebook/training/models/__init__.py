"""Models as LightningModules, named below, and the bases of those of images."""

from scalebook.training.models.classifier import Classifier
from scalebook.training.models.conv_classifier import ConvClassifier
from scalebook.training.models.image_model import ImageModel
from scalebook.training.models.mlp_classifier import MLPClassifier
from scalebook.training.models.pixel_cnn import PixelCNN
from scalebook.training.models.ranker import Ranker
from scalebook.training.models.translator import Translator

__all__ = [
    "Classifier",
    "ConvClassifier",
    "ImageModel",
    "MLPClassifier",
    "PixelCNN",
    "Ranker",
    "Translator",
]
