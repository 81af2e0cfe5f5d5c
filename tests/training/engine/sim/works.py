"""What virtual workers compute on, in tests."""

from collections.abc import Callable
from typing import Any

import torch

from scalebook.training.engine.worker.worker_end import RandomStream


class Asked:
    """A `Work`: whether there is a batch is asked of a function; nothing comes back."""

    def __init__(self, wants: Callable[[int], bool]) -> None:
        self.take_batch = wants

    def mark_pushed(self, worker: int) -> None:
        """Nothing."""

    def may_come_back(self, worker: int) -> bool:
        return False

    def lost(self, worker: int) -> None:
        """Nothing."""

    def returns(self, worker: int) -> None:
        """Nothing."""


class TorchStream(RandomStream):
    """Torch's generator on the CPU; worker w begins with seed w."""

    def of_worker(self, worker: int) -> Any:
        return torch.Generator().manual_seed(worker).get_state()

    def state(self) -> Any:
        return torch.get_rng_state()

    def load(self, state: Any) -> None:
        torch.set_rng_state(state)
