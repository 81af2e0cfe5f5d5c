"""A reader that lists the runs of a notebook once, for whoever asks about all of its cells."""

from collections.abc import Sequence
from typing import Final

from scalebook.training.tracking import names
from scalebook.training.tracking.run_reader import NEWEST_FIRST, MetricCurve, RunReader, RunRecord

MOST_OF_NOTEBOOK: Final = 1000
"""Runs of a notebook that are read at once."""


class NotebookRuns(RunReader):
    """A reader that reads the runs of one notebook, without trials, once: for all cells in one drawing of a page, or
    one step of a question.

    It answers queries about the notebook's cells itself; all others, and those of a notebook with more than
    MOST_OF_NOTEBOOK runs, it passes on to `reader`. `records`: the notebook's runs, if the caller has them.
    """

    def __init__(self, reader: RunReader, notebook: str, records: Sequence[RunRecord] | None = None) -> None:
        super().__init__(reader.tracking_uri)
        self.reader, self.notebook = reader, notebook
        self._all = records

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
                self._all = self.reader.listed(MOST_OF_NOTEBOOK, notebook=notebook, trials=False)
            if len(self._all) < MOST_OF_NOTEBOOK:
                return [record for record in self._all if self._is_of(record, cell, config_hash)][:limit]
        return self.reader.runs(
            notebook=notebook, cell=cell, config_hash=config_hash, where=where, limit=limit, order_by=order_by
        )

    @staticmethod
    def _is_of(record: RunRecord, cell: str | None, config_hash: str | None) -> bool:
        return cell in (None, record.cell) and config_hash in (None, record.tags.get(names.TAG_CONFIG_HASH))
