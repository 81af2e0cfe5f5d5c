"""Models as LightningModules: `ConvClassifier`, `MLPClassifier`, `PixelCNN`, and the base classes of image models."""

from training.models.classifier import Classifier
from training.models.conv_classifier import ConvClassifier
from training.models.image_model import ImageModel
from training.models.mlp_classifier import MLPClassifier
from training.models.pixel_cnn import PixelCNN

__all__ = ["Classifier", "ConvClassifier", "ImageModel", "MLPClassifier", "PixelCNN"]
