"""A reader of runs for many visitors: what cannot change any more is read once."""

import threading
from collections import OrderedDict
from collections.abc import Sequence

from training.tracking.reading import NEWEST_FIRST, Curve, RunReader, RunRecord

CURVES_KEPT = 4000  # about 20 kB each


class KeptReader(RunReader):
    """Keeps the curves of ended runs. Safe to use from several threads, like its parent."""

    def __init__(self, tracking_uri: str) -> None:
        super().__init__(tracking_uri)
        self._lock = threading.Lock()
        self._ended: set[str] = set()
        self._curves: OrderedDict[tuple[str, str], Curve] = OrderedDict()

    def run(self, run_id: str) -> RunRecord:
        found = super().run(run_id)
        self._note([found])
        return found

    def runs(
        self,
        *,
        notebook: str | None = None,
        cell: str | None = None,
        where: str = "",
        limit: int = 100,
        order_by: Sequence[str] = NEWEST_FIRST,
    ) -> list[RunRecord]:
        found = super().runs(notebook=notebook, cell=cell, where=where, limit=limit, order_by=order_by)
        self._note(found)
        return found

    def curve(self, run_id: str, metric: str) -> Curve:
        key = (run_id, metric)
        with self._lock:
            kept = self._curves.get(key)
            ended = run_id in self._ended
        if kept is not None:
            return kept
        found = super().curve(run_id, metric)
        if ended:  # as known before the reading: nothing can have been added since
            with self._lock:
                self._curves[key] = found
                while len(self._curves) > CURVES_KEPT:
                    self._curves.popitem(last=False)
        return found

    def _note(self, found: Sequence[RunRecord]) -> None:
        with self._lock:
            self._ended.update(one.id for one in found if one.ended is not None)
