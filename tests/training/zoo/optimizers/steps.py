"""Layers, gradients and steps, for torch and for the equations written out again in numpy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import Parameter
from torch.optim import Optimizer

Array = NDArray[np.float64]
SHAPES = ((4, 3), (3,), (2, 3, 2), (), (5, 2), (3, 3))
"""Two matrices, a vector, a tensor, a number; the fifth is a layer of zeros, the last has a gradient of zeros."""


def layers() -> list[Array]:
    random = np.random.default_rng(5)
    made = [np.asarray(random.normal(size=shape)) for shape in SHAPES]
    made[4] = np.zeros(SHAPES[4])
    return made


def gradients(step: int) -> list[Array]:
    random = np.random.default_rng(100 + step)
    made = [np.asarray(random.normal(size=shape)) for shape in SHAPES]
    made[5] = np.zeros(SHAPES[5])
    return made


def taken(make: Callable[[list[Parameter]], Optimizer], steps: int, rates: Callable[[int], float]) -> list[Array]:
    """The layers after so many steps of torch's, with the learning rate of each set before it."""
    parameters = [Parameter(torch.tensor(layer)) for layer in layers()]
    optimizer = make(parameters)
    for step in range(steps):
        for parameter, gradient in zip(parameters, gradients(step), strict=True):
            parameter.grad = torch.tensor(gradient)
        optimizer.param_groups[0]["lr"] = rates(step)
        optimizer.step()
    return [parameter.detach().numpy() for parameter in parameters]


def rising(step: int) -> float:
    """A warm-up over six steps."""
    return 0.3 * min(1.0, (step + 1) / 6)


def assert_equal(found: list[Array], expected: list[Any]) -> None:
    for mine, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-12, atol=1e-12)
