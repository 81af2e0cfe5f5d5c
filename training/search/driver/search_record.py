"""Records a search in MLflow: its parent run, and how the study judged each trial's runs."""

import json
import shutil
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from scalebook.training.search.search_folder import SearchFolder
from scalebook.training.search.study.trials import TrialRecord
from scalebook.training.tracking import names, run_start

if TYPE_CHECKING:
    from mlflow import MlflowClient

STATUS: Final = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}
INTERRUPTED: Final = "interrupted"
"""State of a run that was ended with everything else, and whose trial was run again."""
PAGE: Final = 1000


class SearchRecord:
    """The MLflow side of one search. Whatever MLflow raises goes to the caller."""

    def __init__(self, folder: SearchFolder) -> None:
        self.folder = folder
        self.client: MlflowClient = run_start.open_store(folder.workspace)

    def record_start(self) -> None:
        """Mark the parent run as RUNNING in MLflow."""
        run_start.mark_running(self.client, self.folder.id, time.time())

    def judged(self, run_id: str, state: str) -> None:
        """Record in a run how its trial ended, as the study says."""
        self.client.set_tag(run_id, names.TAG_TRIAL_STATE, state)

    def tags(self, run_id: str) -> dict[str, str]:
        """The tags of a trial's run."""
        return dict(self.client.get_run(run_id).data.tags)

    def so_far(self, done: int, best: float | None) -> None:
        """Extend the parent's curve: the best value by the number of trials that have ended."""
        self.client.log_metric(self.folder.id, names.SEARCH_ENDED, float(done), step=done)
        if best is not None:
            self.client.log_metric(self.folder.id, names.SEARCH_BEST, best, step=done)

    def record_end(self, status: str, cause: str, advice: str, best: TrialRecord | None) -> None:
        """End the parent run, with the best trial in its tags."""
        tags = {names.TAG_STATUS: status, names.TAG_CAUSE: cause, names.TAG_ADVICE: advice}
        if best is not None:
            tags |= {names.TAG_BEST_TRIAL: str(best.number), names.TAG_POINT: json.dumps(best.point, default=str)}
        for name, value in tags.items():
            if value:
                self.client.set_tag(self.folder.id, name, value)
        self.client.set_terminated(self.folder.id, STATUS[status])

    def mend(self, records: Iterable[TrialRecord]) -> int:
        """After an interruption, remove runs that never got a job, and record missing judgements.

        Returns how many runs were mended.
        """
        by_run = {run_id: record for record in records for run_id in record.runs.values()}
        mended = 0
        for run in self.children():
            run_id, recorded = run.info.run_id, run.data.tags.get(names.TAG_TRIAL_STATE)
            if not (self.folder.workspace.jobs / run_id).exists():
                if recorded is None:
                    self.client.delete_run(run_id)
                    shutil.rmtree(self.folder.workspace.jobs / f".{run_id}", ignore_errors=True)
                    mended += 1
                continue
            record = by_run.get(run_id)
            if record is not None and record.state not in ("running", "waiting", recorded):
                self.judged(run_id, record.state)
                mended += 1
        return mended

    def children(self) -> list[Any]:
        """The MLflow runs of its trials, without deleted ones."""
        where = f"tags.`{names.TAG_PARENT}` = '{self.folder.id}'"
        runs: list[Any] = []
        token = None
        request = self.folder.request()
        experiment = request.trials_experiment or self.client.get_run(self.folder.id).info.experiment_id
        while True:
            page = self.client.search_runs([experiment], where, max_results=PAGE, page_token=token)
            runs += page
            if not (token := page.token):
                return runs
