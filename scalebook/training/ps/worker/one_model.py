"""One model that stands for the model of each virtual worker in turn, without a copy of its parameters."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from scalebook.training.ps.optimizer.rebuilding import parameters_of, rebuild


class _Own:
    """What one worker has of its own: optimizers over parameters that point to the version it holds, buffers, and the
    state of torch's random numbers on the CPU."""

    def __init__(self, optimizers: Sequence[Optimizer], buffers: Sequence[Tensor], random_state: Tensor) -> None:
        self.optimizers = [
            rebuild(optimizer, [Parameter(p.data, p.requires_grad) for p in parameters_of(optimizer)])
            for optimizer in optimizers
        ]
        self.parameters = [p for optimizer in self.optimizers for p in parameters_of(optimizer)]
        self.buffers = [buffer.clone() for buffer in buffers]
        self.random_state = random_state


class OneModel:
    """`optimizers` are over the model's parameters, before training, and lend every push their hyper-parameters.

    `buffers`: the model's; each worker begins with copies of what they are now. `seed`: worker w's random numbers are
    those of `torch.manual_seed(seed + w)`. Between `show(worker)` and `hand_over(worker)` the model is that worker's.
    """

    def __init__(self, optimizers: Sequence[Optimizer], buffers: Iterable[Tensor] = (), seed: int = 0) -> None:
        self._optimizers, self._buffers, self._seed = list(optimizers), list(buffers), seed
        self._parameters = [p for optimizer in self._optimizers for p in parameters_of(optimizer)]
        self._first = [buffer.clone() for buffer in self._buffers]
        self._own: dict[int, _Own] = {}

    def make(self, worker: int) -> list[Optimizer]:
        """The optimizers with which `worker` joins, and joins again when it returns."""
        random_state = torch.Generator().manual_seed(self._seed + worker).get_state()
        self._own[worker] = _Own(self._optimizers, self._first, random_state)
        return self._own[worker].optimizers

    def show(self, worker: int) -> None:
        """Be the model of `worker`: its version, its buffers, its random numbers; without gradients."""
        own = self._own[worker]
        for parameter, mine in zip(self._parameters, own.parameters, strict=True):
            parameter.data = mine.data
            parameter.grad = None
        for buffer, kept in zip(self._buffers, own.buffers, strict=True):
            buffer.data = kept
        torch.set_rng_state(own.random_state)

    def hand_over(self, worker: int) -> None:
        """Give `worker` the gradients, and whatever else has become of its model and the hyper-parameters.

        ValueError where a param group was added.
        """
        own = self._own[worker]
        for parameter, mine in zip(self._parameters, own.parameters, strict=True):
            mine.grad, parameter.grad = parameter.grad, None
            if mine.requires_grad != parameter.requires_grad:
                mine.requires_grad_(parameter.requires_grad)
            if mine.data_ptr() != parameter.data_ptr():  # somebody has put another tensor there
                mine.data = parameter.data
        own.buffers = [buffer.data for buffer in self._buffers]
        own.random_state = torch.get_rng_state()
        for optimizer, theirs in zip(self._optimizers, own.optimizers, strict=True):
            if len(optimizer.param_groups) != len(theirs.param_groups):
                raise ValueError(
                    "optimizer: a param group was added during training. Add all groups in configure_optimizers and "
                    "freeze them by requires_grad, or train without virtual workers."
                )
            for group, given in zip(theirs.param_groups, optimizer.param_groups, strict=True):
                group.update({key: value for key, value in given.items() if key != "params"})
