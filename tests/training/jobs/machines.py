"""This machine with as many cores as a test needs."""

from scalebook.training.jobs.devices import NodeDevices
from scalebook.training.jobs.executor import LocalExecutor


class Cores(LocalExecutor):
    """Lends these cores, whatever the machine has."""

    def __init__(self, *numbers: int) -> None:
        super().__init__()
        self.numbers = list(numbers)

    def machines(self) -> list[NodeDevices]:
        return [NodeDevices(self.numbers)]
