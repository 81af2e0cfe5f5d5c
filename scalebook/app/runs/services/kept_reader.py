"""A reader of runs for many visitors: what cannot change any more is read once."""

import threading
from collections import OrderedDict
from collections.abc import Sequence

from scalebook.training.tracking import names
from scalebook.training.tracking.reading import NEWEST_FIRST, MetricCurve, RunReader, RunRecord

MOST = 1000  # runs of a notebook that are read at once
CURVES_KEPT = 4000  # about 20 kB each


class KeptReader(RunReader):
    """Keeps the curves of ended runs. Safe to use from several threads, like its parent."""

    def __init__(self, tracking_uri: str) -> None:
        super().__init__(tracking_uri)
        self._lock = threading.Lock()
        self._ended: set[str] = set()
        self._curves: OrderedDict[tuple[str, str], MetricCurve] = OrderedDict()

    def run(self, run_id: str) -> RunRecord:
        record = super().run(run_id)
        self._note([record])
        return record

    def listed(self, limit: int) -> list[RunRecord]:
        records = super().listed(limit)
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
            kept = {metric: self._curves.get((run_id, metric)) for metric in metrics}
            ended = run_id in self._ended
        missing = [metric for metric, curve in kept.items() if curve is None]
        read = {curve.metric: curve for curve in super().curves(run_id, missing)} if missing else {}
        if ended and read:  # as known before the reading: nothing can have been added since
            with self._lock:
                for metric, curve in read.items():
                    self._curves[run_id, metric] = curve
                while len(self._curves) > CURVES_KEPT:
                    self._curves.popitem(last=False)
        return [kept[metric] or read[metric] for metric in metrics]

    def _note(self, records: Sequence[RunRecord]) -> None:
        with self._lock:
            self._ended.update(record.id for record in records if record.ended is not None)


class NotebookRuns(RunReader):
    """The runs of one notebook but for trials, read at once and not again: for all cells of a page that is drawn.

    What is asked of its cells is answered from there; all else, and what a notebook of more than MOST runs is asked, is
    passed on to `reader`. `known`: all runs of the store as they stand, where somebody has them.
    """

    def __init__(self, reader: RunReader, notebook: str, known: Sequence[RunRecord] | None = None) -> None:
        super().__init__(reader.tracking_uri)
        self.reader, self.notebook = reader, notebook
        self._all: list[RunRecord] | None = None
        if known is not None:
            self._all = [run for run in known if run.notebook == notebook and names.TAG_TRIAL not in run.tags][:MOST]

    def run(self, run_id: str) -> RunRecord:
        return self.reader.run(run_id)

    def curves(self, run_id: str, metrics: Sequence[str]) -> list[MetricCurve]:
        return self.reader.curves(run_id, metrics)

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
        if notebook == self.notebook and not where and tuple(order_by) == NEWEST_FIRST:
            if self._all is None:
                self._all = self.reader.runs(notebook=notebook, where=f"tags.`{names.TAG_TRIAL}` IS NULL", limit=MOST)
            if len(self._all) < MOST:
                return [record for record in self._all if self._is_of(record, cell, config_hash)][:limit]
        return self.reader.runs(
            notebook=notebook, cell=cell, config_hash=config_hash, where=where, limit=limit, order_by=order_by
        )

    @staticmethod
    def _is_of(record: RunRecord, cell: str | None, config_hash: str | None) -> bool:
        return cell in (None, record.cell) and config_hash in (None, record.tags.get(names.TAG_CONFIG_HASH))
