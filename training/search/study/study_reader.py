"""Reading a study that another process writes, for pages: only what is new is read."""

import threading

from scalebook.training.experiments.search import SearchSpec
from scalebook.training.search.study.storage import close_storage, journal_path, open_storage, store_errors
from scalebook.training.search.study.trials import Records, TrialRecord


class _Reading:
    """One study open for reading: a storage that takes in what is new, and the records made so far."""

    def __init__(self, storage: str, name: str, spec: SearchSpec) -> None:
        self.storage, self.name = storage, name
        self.space = spec.space
        self.mark = _mark(storage)
        self._kept = open_storage(storage)
        self._records = Records(spec.space)
        self._lock = threading.Lock()

    def close(self) -> None:
        with self._lock:
            close_storage(self._kept)

    def records(self) -> list[TrialRecord]:
        with self._lock, store_errors(self.storage):
            try:
                study = self._kept.get_study_id_from_name(self.name)
            except KeyError:
                return []
            return self._records.of(self._kept.get_all_trials(study, deepcopy=False))


_readings: dict[tuple[str, str], _Reading] = {}
_changing = threading.Lock()
READINGS = 16
"""Studies that are kept open for reading; the one opened first is closed first."""


def read_study(storage: str, name: str, spec: SearchSpec) -> list[TrialRecord]:
    """All trials of a study, for pages: a journal is read from where the last call stopped. [] where there is none.

    From several threads; never writes to a journal. ConfigError where the store cannot be read.
    """
    path = journal_path(storage)
    if path is not None and not path.exists():
        return []
    reading = _readings.get((storage, name))
    if reading is None or reading.space != spec.space or reading.mark != _mark(storage):
        reading = _Reading(storage, name, spec)
        with _changing:
            _drop(storage, name)
            _readings[storage, name] = reading
            while len(_readings) > READINGS:
                _drop(*next(iter(_readings)))
    return reading.records()


def _mark(storage: str) -> tuple[int, int] | None:
    """Which file a journal is: another one, once it was deleted and made anew."""
    path = journal_path(storage)
    if path is None:
        return None
    stat = path.stat()
    return stat.st_dev, stat.st_ino


def forget() -> None:
    """Close all studies; the next reads open them again."""
    with _changing:
        for storage, name in list(_readings):
            _drop(storage, name)


def _drop(storage: str, name: str) -> None:
    gone = _readings.pop((storage, name), None)
    if gone is not None:
        gone.close()
