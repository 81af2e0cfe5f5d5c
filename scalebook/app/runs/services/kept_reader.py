"""A reader of runs for many visitors: what cannot change any more is read once."""

import threading
from collections import OrderedDict
from collections.abc import Sequence

from scalebook.training.tracking.reading import NEWEST_FIRST, MetricCurve, RunReader, RunRecord

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

    def runs(
        self,
        *,
        notebook: str | None = None,
        cell: str | None = None,
        where: str = "",
        limit: int = 100,
        order_by: Sequence[str] = NEWEST_FIRST,
    ) -> list[RunRecord]:
        records = super().runs(notebook=notebook, cell=cell, where=where, limit=limit, order_by=order_by)
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
