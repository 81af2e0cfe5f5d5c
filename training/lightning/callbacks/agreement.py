"""Decisions that worker 0 makes by the clock and all workers must follow at the same step."""

import math
import time
from collections.abc import Callable
from typing import Final

from lightning.pytorch import Trainer

from scalebook.training.lightning.run_figures import figures_of

FIRST_STEPS: Final = 2
MOST_STEPS: Final = 1000


class AgreedDecision:
    """Calls `decide` about every `every_s` seconds and passes the answer to every worker.

    Synchronous workers (DDP) must all call `now` at the same batches: worker 0 broadcasts its decision together with
    the number of batches until the next one, so that the exchange (0.3 ms) is as rare. Asynchronous workers decide each
    for itself.
    """

    def __init__(self, decide: Callable[[], bool], every_s: float) -> None:
        self.decide = decide
        self.every_s = every_s
        self._next_time = 0.0
        self._steps_left = FIRST_STEPS
        self._asked = time.monotonic()
        self._steps = FIRST_STEPS

    def now(self, trainer: Trainer) -> bool:
        """Whether all workers shall act after this batch."""
        if trainer.world_size == 1 or figures_of(trainer) is not None:
            return self._by_clock()
        self._steps_left -= 1
        if self._steps_left > 0:
            return False
        decision, self._steps = trainer.strategy.broadcast((self.decide(), self._pace()))
        self._steps_left, self._asked = self._steps, time.monotonic()
        return decision

    def _by_clock(self) -> bool:
        now = time.monotonic()
        if now < self._next_time:
            return False
        self._next_time = now + self.every_s
        return self.decide()

    def _pace(self) -> int:
        """Batches that will take about `every_s`, judged by the last ones."""
        step_s = max(1e-6, (time.monotonic() - self._asked) / self._steps)
        return max(1, min(MOST_STEPS, math.ceil(self.every_s / step_s)))
