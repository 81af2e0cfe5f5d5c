"""A folder with one record of each type: a job's, a search's."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from scalebook.training.base.files import records
from scalebook.training.base.files.records import BrokenRecord

T = TypeVar("T")


@dataclass(frozen=True)
class RecordFolder:
    """Reads and writes the records of a folder. Reading is safe at any time: a file is complete or missing."""

    path: Path
    FILES: ClassVar[Mapping[type, str]]
    """The file name of each type of record."""
    DURABLE: ClassVar[Collection[type]]
    """The types that are flushed to disk when written, so that they survive a power cut."""

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def log(self) -> Path:
        return self.path / "log.txt"

    @property
    def stop_file(self) -> Path:
        return self.path / "stop"

    def broken(self) -> list[BrokenRecord]:
        """The errors of all records that cannot be read."""
        errors = []
        for kind, name in self.FILES.items():
            try:
                records.load(self.path / name, kind)
            except BrokenRecord as error:
                errors.append(error)
        return errors

    def write(self, record: Any) -> None:
        """Write the file of the record's type."""
        records.save(self.path / self.FILES[type(record)], record, durable=type(record) in self.DURABLE)


def load_once(path: Path, kind: type[T]) -> T:
    """A record that never changes, read once. FileNotFoundError if it is missing, BrokenRecord if it cannot be read."""
    untyped: Any = kind
    record: T = _kept(path, untyped)
    return record


@lru_cache(maxsize=8192)
def _kept(path: Path, kind: type[Any]) -> Any:
    record = records.load(path, kind)
    if record is None:
        raise FileNotFoundError(f"{path.parent} has no {path.name}")
    return record


def forget_records() -> None:
    """Forget what `load_once` has read."""
    _kept.cache_clear()
