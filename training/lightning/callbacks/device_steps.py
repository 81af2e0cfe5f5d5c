"""How long steps take the device that computes them, while Python goes on to the next."""

from collections import deque
from typing import NamedTuple

from scalebook.training.engine.memory.device import Device, Mark


class StepSeconds(NamedTuple):
    """Seconds."""

    computing: float
    fetching: float
    """In which the device had nothing to do since the next batch was not there."""


class _Step(NamedTuple):
    before: Mark | None  # end of the step before
    begin: Mark
    end: Mark
    fetching: float


class DeviceSteps:
    """A stamp before and behind each step, read when the device has come there: `pop_seconds` waits for nothing unless
    told to. Between the two stamps lie whatever the device computes and where it waits for Python, or for other
    workers.

    Costs two events a step, some 5 us.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._begun: Mark | None = None
        self._last: Mark | None = None
        self._fetching = 0.0
        self._under_way: deque[_Step] = deque()
        self._computed = self._waited = 0.0

    def begin_step(self, fetching: float) -> None:
        """`fetching`: seconds that this process has spent on fetching batches since the step before."""
        self._begun, self._fetching = self._device.stamp(), fetching

    def end_step(self) -> None:
        """Of the step that was begun."""
        end = self._device.stamp()
        self._under_way.append(_Step(self._last, self._begun, end, self._fetching))
        self._last = end
        self._read()

    def pop_seconds(self, wait: bool = False) -> StepSeconds:
        """Since the last call, by steps that are over. `wait`: for all that were begun."""
        if wait and self._last is not None:
            self._device.wait(self._last)
        self._read()
        spent, self._computed, self._waited = StepSeconds(self._computed, self._waited), 0.0, 0.0
        return spent

    def _read(self) -> None:
        while self._under_way:
            step = self._under_way[0]
            seconds = self._device.seconds(step.begin, step.end)
            if seconds is None:
                return
            between = step.fetching if step.before is None else self._device.seconds(step.before, step.begin)
            assert between is not None, "what lies before a stamp that was reached"
            self._computed += seconds
            self._waited += min(step.fetching, between)
            self._under_way.popleft()
