"""How a search stands, for whoever watches: its progress file, and MLflow's parent run."""

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Final

from scalebook.training.config.search.cost import trials_wanted
from scalebook.training.config.search.definition import SearchSpec
from scalebook.training.search.driver.pace import Pace
from scalebook.training.search.driver.record import SearchRecord
from scalebook.training.search.driver.trial_jobs import Trial
from scalebook.training.search.folder import SearchFolder, SearchProgress, SearchResult
from scalebook.training.search.study.trials import TrialRecord, best

EVERY_S: Final = 1.0


class Telling:
    """Writes `progress.json` every second while `progress` is called often."""

    def __init__(self, folder: SearchFolder, record: SearchRecord) -> None:
        self.folder, self.record = folder, record
        self.overheads: list[float] = []
        """Of the trials that ended under this driver, s."""
        self.pace = Pace()
        self._told = 0.0
        self._recorded = -1
        self._counted: tuple[SearchSpec, int] | None = None

    def due(self) -> bool:
        return time.monotonic() - self._told >= EVERY_S

    def progress(
        self, records: Sequence[TrialRecord], running: Mapping[int, Trial], spec: SearchSpec, note: str, slots: int
    ) -> None:
        """Write it now; the parent run's curve too, where a trial has ended since. `slots`: runs side by side."""
        self.pace.look(running)
        computing = [number for number, trial in running.items() if trial.runs_now()]
        self._told = time.monotonic()
        ended = [record for record in records if record.state not in ("running", "waiting")]
        best_record = best(records, spec)
        progress = SearchProgress(
            time=time.time(),
            done=len(ended),
            running=len(computing),
            trials=max(self._wanted(spec), len(ended)),
            best=best_record.values[0] if best_record else None,
            best_trial=best_record.number if best_record else None,
            left_s=self.pace.seconds_left(max(0, self._wanted(spec) - len(ended)), slots),
            overhead_s=statistics.median(self.overheads) if self.overheads else None,
            note=note,
            now=computing,
        )
        self.folder.write(progress)
        if progress.done != self._recorded:
            self._recorded = progress.done
            self.record.so_far(progress.done, progress.best)

    def end(self, result: SearchResult, records: Sequence[TrialRecord], spec: SearchSpec) -> None:
        """Write the result to MLflow, then to the folder: whoever finds it in the folder finds it in MLflow too."""
        self.record.end(result.status, result.cause, result.advice, best(records, spec))
        self.folder.write(result)
        print(f"scalebook: {result.status}: {result.cause}", flush=True)

    def _wanted(self, spec: SearchSpec) -> int:
        """Counted once for each spec: a grid may have thousands of points."""
        if self._counted is None or self._counted[0] is not spec:
            self._counted = (spec, trials_wanted(spec))
        return self._counted[1]
