"""A log of clicks on advertisements in Criteo's format, as numbers and hashes."""

import hashlib
import itertools
import zlib
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
import torch
from jsonargparse.typing import OpenUnitInterval, PositiveInt
from torch import Tensor
from torch.utils.data import Dataset
from typing_extensions import override

from scalebook.training.data.broken_lines import BrokenLines
from scalebook.training.data.download import cache_folder
from scalebook.training.data.errors import DataError
from scalebook.training.data.given_file import GivenFile
from scalebook.training.data.kept import keep, kept
from scalebook.training.data.ngrams import HASHES, PADDING
from scalebook.training.data.whole import ValidatedAtOnce

ClickBatch = tuple[Tensor, Tensor, Tensor]
"""numbers float32 [batch, 13]; hashes int64 [batch, 26], 0 where a category is missing; clicked float32 [batch]."""
NUMBERS: Final = 13
CATEGORIES: Final = 26
FORMAT: Final = 1
"""Of the file that is kept. Raise it when lines become other numbers."""
NAMES: Final = ("numbers", "hashes", "clicked")


class LoggedClicks(NamedTuple):
    """Lines of a log: float32 [lines, 13], int32 [lines, 26], bool [lines]."""

    numbers: np.ndarray
    hashes: np.ndarray
    clicked: np.ndarray


class ClickLog(ValidatedAtOnce[ClickBatch]):
    """Predict whether an advertisement is clicked, from a log in Criteo's format.

    On each line, with tabs between: 1 where there was a click and else 0, 13 integers, 26 categories as text; any may
    be missing. An integer n becomes log(1 + n), 0 where it is missing or below 0; a category becomes a hash of itself
    and its column. Plain, or compressed by gzip. Lines of another form are counted, named and left out. The last lines
    validate: a log is in the order of time.

    Args:
        file: A file on this machine. Or set `url`, `sha256` and `size`.
        url: Address to download it from, once, into the user's cache.
        sha256: SHA-256 of the file; a download with another one is refused.
        size: Its size in bytes.
        batch_size: Lines per batch of one worker.
        lines: Read this many lines only, the first ones. Default: all; 160 bytes of memory each, in every worker.
        limit: Train on this many lines only, the first ones. Default: all that do not validate.
        val_fraction: Share of the lines held out for validation: the last.
    """

    def __init__(
        self,
        file: str | None = None,
        url: str | None = None,
        sha256: str | None = None,
        size: PositiveInt | None = None,
        batch_size: PositiveInt = 128,
        lines: PositiveInt | None = None,
        limit: PositiveInt | None = None,
        val_fraction: OpenUnitInterval = 0.1,
    ) -> None:
        super().__init__(batch_size)
        self.given, self.lines = GivenFile(file, url, sha256, size), lines
        self.limit, self.val_fraction = limit, val_fraction

    @override
    def prepare_data(self) -> None:
        """Download the log where it is not there yet, and read it once: some 20 s for a million lines."""
        self.given.download()
        self._clicks()

    @override
    def setup(self, stage: str) -> None:
        if self._parts:
            return
        clicks = self._clicks()
        count = len(clicks.clicked)
        if count < 2:
            raise DataError(f"{self.given.path} has one line; a part to train on and one to validate with need two.")
        trained = min(max(1, count - round(self.val_fraction * count)), count - 1)
        ends = trained if self.limit is None else min(self.limit, trained)
        self._parts = {
            "train": ClickLines(*(column[:ends] for column in clicks)),
            "val": ClickLines(*(column[trained:] for column in clicks)),
        }

    def _clicks(self) -> LoggedClicks:
        """All lines, kept in the user's cache as long as the file is the same."""
        path = self.given.path
        try:
            state = path.stat()
        except OSError as error:
            raise DataError(f"{path} cannot be read ({error}). Name another in data.init_args.file.") from error
        told = (FORMAT, str(path.resolve()), state.st_size, state.st_mtime_ns, self.lines)
        key = hashlib.sha256(repr(told).encode()).hexdigest()[:16]
        place = cache_folder() / f"clicks-{key}.npz"
        found = kept(place, NAMES)
        if found is not None:
            return LoggedClicks(*(found[name] for name in NAMES))
        broken = BrokenLines(path, f"a label, {NUMBERS} integers and {CATEGORIES} categories")
        with self.given.lines() as lines:
            made = read(itertools.islice(lines, self.lines), broken)
        keep(place, made._asdict(), "each worker reads the log")
        return made


def read(lines: Iterable[bytes], broken: BrokenLines) -> LoggedClicks:
    """What the lines say. DataError where none is of the form."""
    numbers: list[np.ndarray] = []
    hashes: list[np.ndarray] = []
    clicked: list[bool] = []
    count = 0
    for count, line in enumerate(lines, 1):
        columns = line.rstrip(b"\r\n").split(b"\t")
        if len(columns) != 1 + NUMBERS + CATEGORIES or columns[0] not in (b"0", b"1"):
            broken.add(count)
            continue
        try:
            found = np.array([int(column or 0) for column in columns[1 : 1 + NUMBERS]], np.float64)
        except (ValueError, OverflowError):
            broken.add(count)
            continue
        numbers.append(np.log1p(found.clip(min=0)).astype(np.float32))
        hashes.append(np.array([_hash(*named) for named in enumerate(columns[1 + NUMBERS :])], np.int32))
        clicked.append(columns[0] == b"1")
    broken.tell(count)
    return LoggedClicks(np.stack(numbers), np.stack(hashes), np.array(clicked))


def _hash(column: int, category: bytes) -> int:
    return 1 + zlib.crc32(b"%d:%s" % (column, category)) % (HASHES - 1) if category else PADDING


class ClickLines(Dataset[ClickBatch]):
    """Lines in memory. `__getitems__` draws a whole batch."""

    def __init__(self, numbers: np.ndarray, hashes: np.ndarray, clicked: np.ndarray) -> None:
        self.numbers, self.hashes, self.clicked = map(torch.from_numpy, (numbers, hashes, clicked))

    def __len__(self) -> int:
        return len(self.clicked)

    def __getitem__(self, index: int) -> ClickBatch:
        numbers, hashes, clicked = self.__getitems__([index])
        return numbers[0], hashes[0], clicked[0]

    def __getitems__(self, indices: list[int]) -> ClickBatch:
        rows = torch.from_numpy(np.array(indices))
        return self.numbers[rows], self.hashes[rows].long(), self.clicked[rows].float()
