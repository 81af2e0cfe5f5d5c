"""What a worker adds up between two of its pushes (`downpour`)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from scalebook.training.ps.optimizer.hyper import Groups


class GradientSum:
    """The usable gradients since the last push, and the hyper-parameters of the last of them.

    `gradients`: by parameter, in memory of their own. `valid`: whether there are any.
    """

    def __init__(self, n_push: int) -> None:
        self._every, self._count = n_push, 0
        self.gradients: list[Tensor | None] = []
        self.groups: Groups = []
        self.valid = False

    @property
    def is_full(self) -> bool:
        """Whether it is to be pushed now."""
        return self._count == self._every

    @property
    def is_left(self) -> bool:
        """Whether there is something to push that will not become full any more."""
        return 0 < self._count < self._every and self.valid

    @torch.no_grad()
    def add(self, gradients: Sequence[Tensor | None], groups: Groups, valid: bool) -> None:
        """One more; the first after a full one begins anew. One that is not `valid` counts, and adds nothing."""
        if self._count in (0, self._every):
            self.gradients, self.valid, self._count = [None] * len(gradients), False, 0
        self._count += 1
        self.groups = [dict(group) for group in groups]
        if valid:
            self.valid = True
            for place, gradient in enumerate(gradients):
                total = self.gradients[place]
                if gradient is not None:
                    self.gradients[place] = gradient.clone() if total is None else total.add_(gradient)

    def clear(self) -> None:
        """It has been pushed."""
        self._count = 0
