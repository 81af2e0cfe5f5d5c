"""Measures how long steps take on the device, while Python goes on to the next one."""

from collections import deque
from typing import NamedTuple

from scalebook.training.engine.memory.device import Device, Mark


class StepSeconds(NamedTuple):
    """Times, s."""

    computing: float
    fetching: float
    """Time in which the device was idle because the next batch was missing."""


class _Step(NamedTuple):
    before: Mark | None  # end of the step before
    begin: Mark
    end: Mark
    fetching: float


class DeviceSteps:
    """Events before and after each step, read when the device has reached them: `pop_seconds` does not wait unless
    asked. The time between them is what the device computes, and what it waits for Python or other workers.

    It costs two events per step, about 5 us.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._begun: Mark | None = None
        self._last: Mark | None = None
        self._fetching = 0.0
        self._under_way: deque[_Step] = deque()
        self._computed = self._waited = 0.0

    def begin_step(self, fetching: float) -> None:
        """Start a step. `fetching`: time spent on fetching batches since the last step, s."""
        self._begun, self._fetching = self._device.stamp(), fetching

    def end_step(self) -> None:
        """End the step."""
        end = self._device.stamp()
        self._under_way.append(_Step(self._last, self._begun, end, self._fetching))
        self._last = end
        self._read()

    def pop_seconds(self, wait: bool = False) -> StepSeconds:
        """The times of steps that have ended since the last call. `wait`: wait for all started ones."""
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
