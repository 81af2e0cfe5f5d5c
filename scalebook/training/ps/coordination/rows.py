"""A row of bytes for each worker of a run, which that worker writes and all read."""

from torch import Tensor

from scalebook.training.ps.memory.region import Memory


class SharedRows:
    """Anonymous memory, made before the fork; it gets its size from worker 0, which knows the model."""

    def __init__(self, workers: int) -> None:
        self._workers, self._memory = workers, Memory()

    def allocate(self, row_bytes: int) -> None:
        """By worker 0, before anybody maps them."""
        self._memory.allocate(self._workers * row_bytes)

    def map(self, row_bytes: int) -> Tensor:
        """All rows, uint8 [workers, row_bytes]; whole numbers are written and read whole."""
        return self._memory.map()[: self._workers * row_bytes].view(self._workers, row_bytes)

    def close(self) -> None:
        """Give up this process's handle; rows that are mapped stay valid."""
        self._memory.close()
