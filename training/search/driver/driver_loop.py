"""The driver: asks the study for points, runs them as jobs, and tells the study how they ended.

One process a search, `python -m scalebook.training.search.driver.driver_loop FOLDER`, started by the supervisor, with
the search's lock. It holds no state that it cannot recover: a trial is RUNNING in the study before its first job is
made, jobs carry the trial's number, and the study is told only of jobs that have ended. So it may be killed at any
moment; the next driver adopts what runs, tells what has ended, and makes what is missing.
"""

import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

from scalebook.training.base import ConfigError, FailureClass, ProcessId, failures
from scalebook.training.base.files import EXIT_NO_ROOM, NoRoom, forgive, locks
from scalebook.training.experiments import catalogue
from scalebook.training.jobs import ENDED, JobFolder, SupervisorKeeper
from scalebook.training.search.driver.driver_progress import SearchReporter
from scalebook.training.search.driver.search_record import INTERRUPTED, SearchRecord
from scalebook.training.search.driver.trial_jobs import CurveTail, Trial, TrialJobs, side_by_side
from scalebook.training.search.driver.trial_outcome import PRUNED, TrialEnd, outcome_of, trial_end, value
from scalebook.training.search.driver.trial_source import TrialSource
from scalebook.training.search.search_folder import DriverProcess, SearchFolder, SearchResult
from scalebook.training.search.study.own_values import quality
from scalebook.training.search.study.storage import StorageLost
from scalebook.training.search.study.study import Study
from scalebook.training.search.study.trials import TrialRecord
from scalebook.training.tracking import directions

POLL_S: Final = 0.05
MEND: Final = "Fix the cause in the experiment, then resume the search."
MILDER: Final = "Start the search again with another pruner, or without one."
STOP_DEADLINE_S: Final = 60.0
STOPPED: Final = "the search was stopped"
MOST_INTERRUPTIONS: Final = 3
"""How often a trial is run again whose run died unwatched, or never began."""


class Driver:
    """Drives one search, from one thread."""

    def __init__(self, folder: SearchFolder, leaving: threading.Event) -> None:
        """Drives until its end, or until `leaving` is set."""
        self.folder, self.leaving = folder, leaving
        self.description = catalogue.describe(folder.workspace)
        self.record = SearchRecord(folder)
        self.jobs = TrialJobs(folder)
        self.telling = SearchReporter(folder, self.record)
        self.running: dict[int, Trial] = {}
        self.records: list[TrialRecord] = []
        self._wrong: tuple[str, str] | None = None
        """Why further trials are useless, and what to do, as the first trials have shown."""
        self._news = True
        """Whether a trial has ended since the last look at all of them."""
        self._keeper = SupervisorKeeper(folder.workspace)
        self._read_spec()

    def drive(self) -> SearchResult | None:
        """Drive until the budget is used, a stop is requested, or too much fails; None if `leaving` was set first."""
        self._adopt()
        self.record.record_start()
        self._take_stock()
        while not self.leaving.is_set():
            for trial in list(self.running.values()):
                self._look_at(trial)
            self._take_stock()  # so that no run is made after the failure that ends the search
            if self.folder.stop_file.exists():
                return self._stop("stopped", "stopped on request")
            if self._wrong is not None:
                return self._stop("failed", *self._wrong)
            if (why := self.asking.hopeless()) is not None:
                return self._stop("failed", why, MEND)
            self._submit()
            self._take_stock()
            if not self.running and not self.asking.more():
                return budget_end(self.records, self.asking.why_over())
            self._keep_watched()
            self.leaving.wait(POLL_S)
        return None

    def finish(self, result: SearchResult) -> None:
        """Write the search's result to its folder and to MLflow."""
        self._news = True
        self._take_stock()
        self._tell()
        self.telling.write_result(result, self.records, self.spec)
        self.study.close()

    def _read_spec(self) -> None:
        self._stamp = self.folder.stamp()
        self.spec = self.folder.spec(self.description)
        self.seeds = self.spec.experiment.seeds(self.spec.seeds)
        request = self.folder.request()
        self.study = Study.open(request.storage, request.study, self.spec)
        if self.study.mended:
            print(f"scalebook: {self.study.mended}", flush=True)
        self.asking = TrialSource(self.folder, self.study, self.spec)

    def _adopt(self) -> None:
        """Trials that an earlier driver left on their way, with the jobs that it had made for them."""
        jobs_by_trial = self.jobs.existing()
        for open_trial in self.study.running():
            trial = Trial(open_trial.number, open_trial.point, jobs_by_trial.get(open_trial.number, {}))
            if self.seeds[0] in trial.runs:
                trial.curve = CurveTail(trial.runs[self.seeds[0]])
            self.running[trial.number] = trial
            self._note_runs(trial)  # of which the earlier driver may not have come to tell
        if jobs_by_trial or self.running:
            mended = self.record.mend(self.study.records())
            print(f"scalebook: resuming with {len(self.running)} trials; {mended} records were repaired", flush=True)

    def _take_stock(self) -> None:
        if self._stamp != self.folder.stamp():
            self.study.close()
            self._read_spec()
            self._news = True
        if self._news or self.asking.told_study:
            self._news = False
            self.records = self.study.records()
            self.asking.learn(self.records)

    def _tell(self) -> None:
        self.telling.progress(
            self.records,
            self.running,
            self.spec,
            self.asking.wall.words(),
            side_by_side(self.spec, self.folder.workspace),
        )

    def _keep_watched(self) -> None:
        if self.telling.due():
            self._tell()
        self._keeper.has_changed()

    # --- trials on their way -------------------------------------------------------------------------------------

    def _look_at(self, trial: Trial) -> None:
        """Report what its curve says, prune it, and end it when its runs have decided that."""
        if trial.curve is not None:
            self._report(trial, trial.curve)
        if self.spec.pruner == "wilcoxon":
            self._compare_seeds(trial)
        outcome = trial_end(trial, self.spec, self.seeds)
        if outcome is not None:
            self._end(trial, outcome)

    def _report(self, trial: Trial, curve: CurveTail) -> None:
        metric, _ = quality(self.spec)
        if not metric:
            return
        points = [(point["samples"], point["metrics"][metric]) for point in curve.news() if metric in point["metrics"]]
        for samples, reached in points:
            self.study.report(trial.number, int(samples), float(reached))
        if points and self.spec.pruner != "wilcoxon" and not trial.pruned and self.study.should_prune(trial.number):
            trial.pruned = f"{PRUNED} at {points[-1][0]:,} samples, because other trials were better at that point"
            for job in trial.open_jobs():
                job.ask_to_stop(trial.pruned, "search")

    def _compare_seeds(self, trial: Trial) -> None:
        """After each seed: is the trial surely worse than the best one on the same seeds?"""
        compared = trial.compared
        for index, seed in enumerate(self.seeds):
            job = trial.runs.get(seed)
            if seed in compared or job is None or outcome_of(job) != "finished":
                continue
            compared.add(seed)
            if (objective := value(job, self.spec.objectives[0], self.spec)) is not None:
                self.study.seed_value(trial.number, index, objective)
                if len(compared) < len(self.seeds) and self.study.should_prune(trial.number):
                    trial.pruned = f"{PRUNED} after {len(compared)} seeds, because the best trial is clearly better"

    def _end(self, trial: Trial, outcome: TrialEnd) -> None:
        """Tell the study, then MLflow: in this order a driver that dies between them is made good by the next."""
        number = trial.number
        if not any(record.state == "finished" for record in self.records):
            self._wrong = self._wrong or self._mistaken(trial, outcome)
        self.study.update_trial(number, seconds=outcome.seconds, spread=outcome.spread)
        if outcome.state == "finished":
            self.study.finish(number, outcome.values)
        elif outcome.state == "pruned":
            self.study.prune(number, outcome.cause)
        elif outcome.state == "infeasible":
            self.study.infeasible(number, outcome.failure, outcome.cause)
        else:
            self.study.fail(number, outcome.failure, outcome.cause)
        for job in trial.runs.values():
            self.record.judged(job.id, outcome.state)
        if outcome.overhead is not None:
            self.telling.overheads.append(outcome.overhead)
        self.telling.pace.note_end(trial)
        del self.running[number]
        self._news = True

    def _mistaken(self, trial: Trial, outcome: TrialEnd) -> tuple[str, str] | None:
        """What the first trial that ended says of the objectives: one that nothing logs, or whose other values are
        better, as the run has recorded of its config or of torchmetrics."""
        if outcome.unlogged:
            fix = (
                f"Replace {outcome.unlogged} by an objective that the runs log, or log {outcome.unlogged} in the model."
            )
            return outcome.cause, fix
        if outcome.state != "finished":
            return None
        tags = self.record.tags(trial.runs[self.seeds[0]].id)
        for objective in self.spec.objectives:
            better = directions.of_runs(objective.name, None, [tags])
            if not objective.said and better.source == "recorded" and better.lower != objective.lower:
                wanted = "min" if better.lower else "max"
                cause = (
                    f"for {objective.name}, {better.plain}, according to the first run, but the search assumed the "
                    "opposite"
                )
                return cause, f"Set objective: {{{objective.name}: {wanted}}}."
        return None

    def _stop(self, status: Literal["stopped", "failed"], cause: str, advice: str = "") -> SearchResult:
        """End the runs that go on; their trials stay open in the study and are run again when it is resumed."""
        jobs = [job for trial in self.running.values() for job in trial.open_jobs()]
        for job in jobs:
            job.ask_to_stop(STOPPED, "search")
        deadline = time.monotonic() + STOP_DEADLINE_S
        while time.monotonic() < deadline and any(job.state() not in ENDED for job in jobs):
            time.sleep(POLL_S)
        for trial in list(self.running.values()):
            self._look_at(trial)
        return SearchResult(status, time.time(), cause, advice)

    # --- new runs ------------------------------------------------------------------------------------------------

    def _submit(self) -> None:
        """Keep as many runs waiting as can run side by side, so that no device waits for the driver."""
        waiting = sum(job.state() == "waiting" for trial in self.running.values() for job in trial.runs.values())
        lacking = side_by_side(self.spec, self.folder.workspace) - waiting
        for trial in list(self.running.values()):
            if lacking > 0 and (seed := self._wanted(trial)) is not None:
                self._run(trial, seed)
                lacking -= 1
        while lacking > 0 and self.asking.more():
            if (proposed := self.asking.point()) is not None:
                trial = self.running[proposed.number] = Trial(proposed.number, proposed.point)
                self._run(trial, self.seeds[0])
                lacking -= 1
            self._news = True
            self._take_stock()

    def _wanted(self, trial: Trial) -> int | None:
        """Seed of the trial's next run: the first not begun, or to be begun again; None while one runs."""
        for seed in self.seeds if not trial.pruned else ():
            job = trial.runs.get(seed)
            if job is None:
                return seed
            verdict = outcome_of(job)
            if verdict == "going":
                return None
            if verdict == "again":
                return self._again(trial, seed, job)
        return None

    def _again(self, trial: Trial, seed: int, job: JobFolder) -> int | None:
        """A run that was ended with everything else is run anew, a few times."""
        self.record.judged(job.id, INTERRUPTED)
        trial.interruptions += 1
        if trial.interruptions <= MOST_INTERRUPTIONS:
            return seed
        cause = f"its run died while no supervisor was watching it, or never started ({trial.interruptions} times)"
        self._end(trial, TrialEnd("failed", failure=FailureClass.KILLED.value, cause=cause))
        return None

    def _run(self, trial: Trial, seed: int) -> None:
        """Submit one run of the trial; a point that makes no config is the end of it."""
        try:
            job = self.jobs.submit(self.spec, trial, seed)
        except NoRoom:
            raise  # it says nothing of the point
        except ConfigError as error:
            self._end(trial, TrialEnd("infeasible", failure=FailureClass.CONFIGURATION.value, cause=str(error)))
            return
        self._note_runs(trial)
        if seed == self.seeds[0]:
            trial.curve = CurveTail(job)

    def _note_runs(self, trial: Trial) -> None:
        self.study.update_trial(trial.number, runs={seed: run.id for seed, run in trial.runs.items()})


def budget_end(records: Sequence[TrialRecord], why: str) -> SearchResult:
    """The result of a search that used its budget, for the reason `why`; failed if no trial finished."""
    failed = [record for record in records if record.state in ("failed", "infeasible")]
    if not any(record.state == "finished" for record in records):
        pruned = [record for record in records if record.state == "pruned"]
        counts = f", {len(pruned)} were pruned" if pruned else ""
        last = next((f"; the last cause: {record.cause}" for record in reversed(failed or pruned)), "")
        cause = f"none of {len(records)} trials finished{counts}{last}"
        return SearchResult("failed", time.time(), cause, MEND if failed else MILDER)
    ran = [record for record in failed if record.runs]
    some = f", {len(ran)} of them failed; the last cause: {ran[-1].cause}" if ran else ""
    return SearchResult("finished", time.time(), f"{why}{some}", failed=len(ran))


def drive(folder: SearchFolder) -> int:
    """Drive a search; returns 0 when it has ended or another process drives it, 1 when it failed."""
    leaving = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: leaving.set())
    with locks.only_one(folder.lock) as acquired:
        if not acquired:
            folder.undriven()  # the supervisor has named this process
            return 0
        result: SearchResult | None = None
        try:
            folder.write(DriverProcess(ProcessId.of(), time.time()))
            driver = Driver(folder, leaving)
            result = driver.drive()
            if result is not None:
                driver.finish(result)
        except StorageLost:  # the supervisor starts a driver again, a few times
            traceback.print_exc()
            return 1
        except Exception as error:  # noqa: BLE001 - the end of the search, whatever it is, is recorded
            traceback.print_exc()
            if (
                failures.classify(error).failure_class is FailureClass.DISK_FULL
            ):  # as soon as there is room another one goes on
                return EXIT_NO_ROOM
            result = _failed(folder, error)
        folder.undriven()
    return 1 if result is not None and result.status == "failed" else 0


def _failed(folder: SearchFolder, error: Exception) -> SearchResult:
    """A search whose driver cannot go on: said in the folder, and in MLflow if that is not the cause."""
    cause, advice = (
        f"its driver failed: {type(error).__name__}: {error}",
        f"Check {folder.log}, then resume the search.",
    )
    if isinstance(error, ConfigError):
        cause, advice = f"{error.problem.key} {error.problem.message}", error.problem.fix
    result = SearchResult("failed", time.time(), cause, advice)
    try:
        SearchRecord(folder).record_end(result.status, cause, advice, None)
    except Exception:  # noqa: BLE001 - MLflow may be what failed; the folder must say so all the same
        traceback.print_exc()
    folder.write(result)
    return result


if __name__ == "__main__":
    forgive()
    sys.exit(drive(SearchFolder(Path(sys.argv[1]))))
