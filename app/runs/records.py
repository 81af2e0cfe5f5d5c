"""Reading what runs have recorded, from a job's folder or from the store; and readers with a cache."""

import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from scalebook.app.runs.data import RunView
from scalebook.training.base import Workspace, sqlite_address, trust
from scalebook.training.base.files import BrokenRecord, records, safe_reading
from scalebook.training.engine.coordination import measures
from scalebook.training.pricing import part_record
from scalebook.training.tracking import NEWEST_FIRST, MetricCurve, RunReader, RunRecord, names, worker_figures


def samples_picture(reader: RunReader, run_id: str) -> bytes | None:
    """The newest `samples.png`; None where the model draws none."""
    return read_artifact(reader, run_id, names.SAMPLES_PICTURE)


def read_artifact(reader: RunReader, run_id: str, name: str) -> bytes | None:
    """The content of a file in the run's root folder: 1 ms in a local store, a request or two at a server. None if
    there is none, or if it is larger than MOST_OWN_BYTES."""
    client = reader.client
    sizes = (
        {} if leads_out(reader, run_id) else {file.path: file.file_size or 0 for file in client.list_artifacts(run_id)}
    )
    if sizes.get(name, safe_reading.MOST_OWN_BYTES + 1) > safe_reading.MOST_OWN_BYTES:
        return None
    with tempfile.TemporaryDirectory(prefix="scalebook-") as folder:
        return Path(client.download_artifacts(run_id, name, folder)).read_bytes()


def leads_out(reader: RunReader, run_id: str) -> bool:
    """Whether the artifacts of a run of the folder's own store are elsewhere on this machine, by address or by a link.

    The store may come from somebody else, who could make the page show other files of this user.
    """
    workspace = Workspace.find()
    if reader.tracking_uri != sqlite_address(workspace.database):
        return False
    place = urlsplit(reader.client.get_run(run_id).info.artifact_uri)
    if place.scheme not in ("", "file"):
        return False
    return not trust.within(workspace, Path(unquote(place.path)))


def config_text(reader: RunReader, run_id: str) -> str:
    """The config that ran; "" if it was not recorded."""
    content = read_artifact(reader, run_id, names.CONFIG_ARTIFACT)
    return "" if content is None else content.decode("utf-8", "replace")


def pushes_in_folder(folder: Path) -> measures.PushRecord | None:
    """The record of a run's pushes that `push_recorder.py` has left in a job's folder; None without one."""

    def read(name: str) -> bytes | None:
        try:
            return safe_reading.whole(folder / name)
        except OSError:
            return None

    return _push_record(read)


def pushes_in_store(reader: RunReader, run_id: str) -> measures.PushRecord | None:
    """The record of a run's pushes among its artifacts; None without one."""
    return _push_record(lambda name: read_artifact(reader, run_id, name))


def _push_record(read: Callable[[str], bytes | None]) -> measures.PushRecord | None:
    """The record, or None if it cannot be read. Runs before `pushes.json` have the counts of staleness alone."""
    for name in (names.PUSHES_JSON, names.STALENESS_JSON):
        if content := read(name):
            try:
                return records.parse(Path(name), content, measures.PushRecord)
            except BrokenRecord:
                continue
    return None


def parts_in_folder(folder: Path) -> part_record.PartRecord | None:
    """Which part of a split model lies where, as `PartsRecorder` has left it in a job's folder; None without it."""
    try:
        return _part_record(safe_reading.whole(folder / names.PARTS_JSON))
    except OSError:
        return None


def parts_in_store(reader: RunReader, run_id: str) -> part_record.PartRecord | None:
    """The same among a run's artifacts."""
    return _part_record(read_artifact(reader, run_id, names.PARTS_JSON))


def _part_record(content: bytes | None) -> part_record.PartRecord | None:
    try:
        return records.parse(Path(names.PARTS_JSON), content, part_record.PartRecord) if content else None
    except BrokenRecord:
        return None


def workers_state(folder: Path) -> tuple[int, int] | None:
    """Time and size of the workers' file in a job's folder, which change when it grows; None without one."""
    try:
        facts = (folder / names.WORKERS_JSONL).lstat()
    except OSError:
        return None
    return facts.st_mtime_ns, facts.st_size


def workers_in_folder(folder: Path) -> worker_figures.WorkerFigures:
    """Figures of single workers (tracking/worker_figures.py) in a job's folder; none without the file, or if it is
    larger than LARGEST."""
    try:
        return worker_figures.parsed(safe_reading.whole(folder / names.WORKERS_JSONL, worker_figures.LARGEST))
    except OSError:
        return worker_figures.WorkerFigures()


def workers_in_store(reader: RunReader, run_id: str) -> worker_figures.WorkerFigures:
    return worker_figures.parsed(read_artifact(reader, run_id, names.WORKERS_JSONL) or b"")


def with_workers(view: RunView, figures: worker_figures.WorkerFigures) -> RunView:
    """The run with the figures of its workers among its metrics, where runs of earlier versions have them in MLflow."""
    if not figures.last:
        return view
    return replace(view, record=replace(view.record, metrics={**view.record.metrics, **figures.last}))


CURVES_KEPT = 4000  # about 20 kB each


class CachingReader(RunReader):
    """A reader for many visitors that caches the curves of ended runs. Thread-safe, like its parent."""

    def __init__(self, tracking_uri: str) -> None:
        super().__init__(tracking_uri)
        self._lock = threading.Lock()
        self._ended: set[str] = set()
        self._curves: OrderedDict[tuple[str, str], MetricCurve] = OrderedDict()

    def run(self, run_id: str) -> RunRecord:
        record = super().run(run_id)
        self._note([record])
        return record

    def listed(self, limit: int, *, notebook: str | None = None, trials: bool = True) -> list[RunRecord]:
        records = super().listed(limit, notebook=notebook, trials=trials)
        self._note(records)
        return records

    def runs(
        self,
        *,
        notebook: str | None = None,
        cell: str | None = None,
        config_hash: str | None = None,
        where: str = "",
        limit: int = 100,
        order_by: Sequence[str] = NEWEST_FIRST,
    ) -> list[RunRecord]:
        records = super().runs(
            notebook=notebook, cell=cell, config_hash=config_hash, where=where, limit=limit, order_by=order_by
        )
        self._note(records)
        return records

    def curves(self, run_id: str, metrics: Sequence[str]) -> list[MetricCurve]:
        with self._lock:
            cached = {metric: self._curves.get((run_id, metric)) for metric in metrics}
            ended = run_id in self._ended
        missing = [metric for metric, curve in cached.items() if curve is None]
        read = {curve.metric: curve for curve in super().curves(run_id, missing)} if missing else {}
        if ended and read:  # as known before the reading: nothing can have been added since
            with self._lock:
                for metric, curve in read.items():
                    self._curves[run_id, metric] = curve
                while len(self._curves) > CURVES_KEPT:
                    self._curves.popitem(last=False)
        return [cached[metric] or read[metric] for metric in metrics]

    def _note(self, records: Sequence[RunRecord]) -> None:
        with self._lock:
            self._ended.update(record.id for record in records if record.ended is not None)
