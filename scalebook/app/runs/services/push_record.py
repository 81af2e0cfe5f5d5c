"""Where the record of a run's pushes is found: in its folder, or in the store (training/callbacks/push_recorder.py)."""

from collections.abc import Callable
from pathlib import Path

from scalebook.app.runs.services import artifacts
from scalebook.training.files import records
from scalebook.training.files.reading import whole
from scalebook.training.files.records import Broken
from scalebook.training.ps.coordination.measures import PushRecord
from scalebook.training.tracking import names
from scalebook.training.tracking.reading import RunReader


def in_folder(folder: Path) -> PushRecord | None:
    """The record in a job's folder; None where there is none (yet)."""

    def read(name: str) -> bytes | None:
        try:
            return whole(folder / name)
        except OSError:
            return None

    return _record(read)


def in_store(reader: RunReader, run_id: str) -> PushRecord | None:
    """The record among a run's artifacts; None where there is none."""
    return _record(lambda name: artifacts.read(reader, run_id, name))


def _record(read: Callable[[str], bytes | None]) -> PushRecord | None:
    """Runs of before `pushes.json` have the counts of staleness alone. None also where it cannot be read."""
    for name in (names.PUSHES_JSON, names.STALENESS_JSON):
        if content := read(name):
            try:
                return records.parse(Path(name), content, PushRecord)
            except Broken:
                continue
    return None
