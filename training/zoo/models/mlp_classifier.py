"""A multi-layer perceptron as classifier."""

from typing import Literal

from jsonargparse.typing import ClosedUnitInterval, PositiveInt
from torch import nn
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel
from typing_extensions import override

from scalebook.training.zoo.data.module import ImageSpec
from scalebook.training.zoo.models.classifier import Classifier

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh}


class MLPClassifier(Classifier):
    """Multi-layer perceptron: fully connected layers over the pixels, each with layer normalisation.

    Args:
        hidden: Units in each hidden layer.
        layers: Number of hidden layers.
        activation: Activation after each hidden layer.
        dropout: Dropout rate after each hidden layer.
        images: Geometry of the images; null: that of the data set.
    """

    def __init__(
        self,
        hidden: PositiveInt = 128,
        layers: PositiveInt = 2,
        activation: Literal["relu", "gelu", "tanh"] = "relu",
        dropout: ClosedUnitInterval = 0.0,
        images: ImageSpec | None = None,
    ) -> None:
        super().__init__(images)
        self.save_hyperparameters(ignore=["images"])
        self.hidden, self.layers, self.activation, self.dropout = hidden, layers, activation, dropout
        self.configure_model()

    @override
    def build(self, images: ImageSpec) -> None:
        stack: list[nn.Module] = [nn.Flatten()]
        features = images.channels * images.height * images.width
        for _ in range(self.layers):
            stack += [nn.Linear(features, self.hidden), nn.LayerNorm(self.hidden), ACTIVATIONS[self.activation]()]
            if self.dropout:
                stack.append(nn.Dropout(self.dropout))
            features = self.hidden
        self.net = nn.Sequential(*stack, nn.Linear(features, images.classes))

    def stages(self) -> list[nn.Module]:
        """Layer after layer, for `ModelParallel`."""
        return list(self.net.children())

    def parallel_plan(self) -> dict[str, ParallelStyle]:
        """Layers by columns and rows in turn, for `ModelParallel`. The normalisation between them needs whole rows, so
        activations are gathered after columns too; an output layer whose turn is columns, of few classes, stays whole.
        """
        layers = [f"net.{place}" for place, part in self.net.named_children() if isinstance(part, nn.Linear)]
        layers = layers[: len(layers) // 2 * 2]
        plan: dict[str, ParallelStyle] = {name: ColwiseParallel(output_layouts=Replicate()) for name in layers[::2]}
        return plan | {name: RowwiseParallel(input_layouts=Replicate()) for name in layers[1::2]}
