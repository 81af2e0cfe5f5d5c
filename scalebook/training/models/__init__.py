"""Models as LightningModules: `ConvClassifier`, `MLPClassifier`, `PixelCNN`, `Ranker`, and their bases."""

from scalebook.training.models.classifier import Classifier
from scalebook.training.models.conv_classifier import ConvClassifier
from scalebook.training.models.image_model import ImageModel
from scalebook.training.models.mlp_classifier import MLPClassifier
from scalebook.training.models.pixel_cnn import PixelCNN
from scalebook.training.models.ranker import Ranker

__all__ = ["Classifier", "ConvClassifier", "ImageModel", "MLPClassifier", "PixelCNN", "Ranker"]
