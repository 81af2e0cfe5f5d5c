"""A small model with sparse tables, its batches and its optimizers."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import SGD, Adagrad, Optimizer, SparseAdam

DEADLINE_S = 20.0
ROWS, WIDTH = 100, 4
Make = Callable[[Iterable[Parameter]], Optimizer]


class Towers(nn.Module):
    """A table for each kind of layer, with padding; `dense`: and a layer above them, which SparseAdam cannot step."""

    def __init__(self, dense: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(ROWS, WIDTH, sparse=True, padding_idx=0)
        self.bags = nn.EmbeddingBag(50, WIDTH, mode="sum", sparse=True, padding_idx=0)
        self.head = nn.Linear(WIDTH, 1) if dense else None

    def forward(self, words: Tensor, bags: Tensor, weights: Tensor) -> Tensor:
        summed = self.words(words).sum(1) + self.bags(bags, per_sample_weights=weights)
        out: Tensor = summed if self.head is None else self.head(summed)
        return out.sub(1).square().mean()


def batch(number: int) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(number)
    words, bags = torch.randint(0, ROWS, (8, 3), generator=draw), torch.randint(0, 50, (8, 5), generator=draw)
    return words, bags, torch.rand(8, 5, generator=draw)


def sgd(parameters: Iterable[Parameter]) -> Optimizer:
    return SGD(parameters, lr=0.1)


def slow_sgd(parameters: Iterable[Parameter]) -> Optimizer:
    return SGD(parameters, lr=0.01)


def adagrad(parameters: Iterable[Parameter]) -> Optimizer:
    return Adagrad(parameters, lr=0.1, lr_decay=0.01, initial_accumulator_value=0.1)


def sparse_adam(parameters: Iterable[Parameter]) -> Optimizer:
    return SparseAdam(list(parameters), lr=0.1)


def gradient(model: nn.Module, number: int) -> None:
    for parameter in model.parameters():
        parameter.grad = None
    model(*batch(number)).backward()
