"""What virtual workers compute on, in tests."""

from collections.abc import Callable


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
