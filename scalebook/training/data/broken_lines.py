"""Lines of a text that are not what they should be: counted, and the first of them named."""

from pathlib import Path
from typing import Final

from lightning.pytorch.utilities import rank_zero_warn

from scalebook.training.data.errors import DataError

NAMED: Final = 5


class BrokenLines:
    """Counts the broken lines of a file. `format_` is what a line should be."""

    def __init__(self, path: Path, format_: str) -> None:
        self.path, self.format = path, format_
        self.count = 0
        self._first: list[int] = []

    def add(self, line: int) -> None:
        """Line `line`, counted from 1, is broken."""
        self.count += 1
        if len(self._first) < NAMED:
            self._first.append(line)

    def tell(self, read: int) -> None:
        """After so many lines: a warning where some are broken, DataError where all are, or there are none."""
        if self.count == read:
            raise DataError(f"{self.path} has no line of {self.format} among {read}. Name another file.")
        if self.count:
            named = ", ".join(map(str, self._first))
            more = ", ..." if self.count > NAMED else ""
            rank_zero_warn(
                f"{self.path}: {self.count} of {read} lines are not {self.format} and are left out: {named}{more}."
            )
