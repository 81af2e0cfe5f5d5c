"""A task small enough to be trained hundreds of times: scikit-learn's digits and a perceptron without normalisation."""

from functools import cache
from typing import Final, NamedTuple

import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn import Linear, Module, ReLU, Sequential
from torch.nn.functional import cross_entropy

from scalebook.training.zoo.data.module import stratified_split

BATCH: Final = 32


class Images(NamedTuple):
    """Pixels float32 [n, 64] in 0..1, labels int64 [n]."""

    pixels: Tensor
    labels: Tensor


@cache
def images() -> tuple[Images, Images]:
    """1,437 to train on and 360 to validate, the same for every seed."""
    digits = load_digits()
    pixels, labels = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target, dtype=torch.int64)
    train, val = stratified_split(labels, val_fraction=0.2, seed=0)
    return Images(pixels[train], labels[train]), Images(pixels[val], labels[val])


def batches_per_epoch() -> int:
    """Whole batches; the rest of an epoch is left out."""
    return len(images()[0].labels) // BATCH


def batch(seed: int, epoch: int, number: int) -> Images:
    """One batch of an epoch's own order, a function of the arguments alone."""
    rows = _order(seed, epoch)[number * BATCH : (number + 1) * BATCH]
    train, _ = images()
    return Images(train.pixels[rows], train.labels[rows])


@cache
def _order(seed: int, epoch: int) -> Tensor:
    generator = torch.Generator().manual_seed(1_000_003 * seed + epoch)
    return torch.randperm(len(images()[0].labels), generator=generator)


def perceptron(seed: int) -> Module:
    """64-128-64-10, 17,226 parameters."""
    torch.manual_seed(seed)
    return Sequential(Linear(64, 128), ReLU(), Linear(128, 64), ReLU(), Linear(64, 10))


def gradient(model: Module, batch: Images) -> float:
    """Puts the gradient of a batch into `p.grad`; returns the loss."""
    for parameter in model.parameters():
        parameter.grad = None
    loss = cross_entropy(model(batch.pixels), batch.labels)
    torch.autograd.backward(loss)
    return loss.item()


@torch.no_grad()
def accuracy(model: Module) -> float:
    """Share of the validation images that are classified right, 0..1."""
    _, val = images()
    return float((model(val.pixels).argmax(1) == val.labels).float().mean())
