"""Searches killed at random moments, and resumed: `python -m benchmarks.search_drills [--rounds N]`.

Each drill begins a search over a small classifier on digits, kills one of three victims at a random moment (the driver;
the supervisor; everything of the workspace, as if the machine had stopped: supervisor, driver, fork server and all
training), resumes the search, and checks the result: no trial lost, none run twice, MLflow, study and jobs in
agreement, nothing left behind. Read the number of faults: it must be 0, else the exit code is 1. About 30 s a drill.
"""

import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.common import command_line, machine, parser, until
from benchmarks.drills import classifier
from scalebook.training.base.processes import ProcessId
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments.catalogue import describe
from scalebook.training.experiments.description import Description
from scalebook.training.jobs import job_requests, supervisor_handle
from scalebook.training.jobs.job_folder import ENDED
from scalebook.training.search import search_folder as searches
from scalebook.training.search import search_requests
from scalebook.training.search.driver.search_record import INTERRUPTED, SearchRecord
from scalebook.training.search.search_folder import SearchFolder
from scalebook.training.search.study.study_reader import read_study
from scalebook.training.search.study.trials import TrialRecord
from scalebook.training.tracking import names

VICTIMS: Final = ("driver", "supervisor", "everything")
TRIALS: Final = 12
BODY: Final[dict[str, Any]] = {
    "config": {
        "seed_everything": 1,
        "optimizer": {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.02}},
        **classifier(max_epochs=4),
    },
    "objective": "val/loss",
    "space": {"batch_size": {"powers_of_two": [16, 256]}, "learning_rate": {"log_uniform": [0.001, 0.2]}},
    "trials": TRIALS,
    "pruner": "median",
}


def audit(folder: SearchFolder, records: Sequence[TrialRecord], *, statuses: bool = True) -> list[str]:
    """What is wrong, [] if nothing is: a trial lost, one run twice, or MLflow and the study disagree.

    `statuses`: whether the runs report their end to MLflow; proxies do not.
    """
    mistakes: list[str] = []
    if [record.number for record in records] != list(range(len(records))):
        mistakes.append(f"trials are missing from the study: {[record.number for record in records]}")
    children = {run.info.run_id: run for run in SearchRecord(folder).children()}
    jobs = {job.id: job for job in job_requests.all_jobs(folder.workspace)}
    ended: Counter[tuple[int, int]] = Counter()
    for run_id, run in children.items():
        number, state = int(run.data.tags[names.TAG_TRIAL]), run.data.tags.get(names.TAG_TRIAL_STATE)
        if run_id not in jobs:
            mistakes.append(f"run {run_id} of trial {number} has no job")
            continue
        if statuses and run.info.status in ("RUNNING", "SCHEDULED"):
            mistakes.append(f"run {run_id} of trial {number} is {run.info.status} in MLflow")
        record = next((record for record in records if record.number == number), None)
        if record is None:
            mistakes.append(f"trial {number} of run {run_id} is not in the study")
        elif state not in (record.state, INTERRUPTED):
            mistakes.append(f"trial {number} is {record.state} in the study and {state} in MLflow")
        result = jobs[run_id].result()
        if result is not None and result.status == "finished":
            ended[number, jobs[run_id].request().seed] += 1
    twice = [(number, seed) for (number, seed), times in ended.items() if times > 1]
    mistakes += [f"trial {number} seed {seed} ran to its end more than once" for number, seed in twice]
    study_runs = {run_id for record in records for run_id in record.runs.values()}
    mistakes += [f"run {run_id} of the study is not in MLflow" for run_id in study_runs - set(children)]
    return mistakes


def is_recorded(workspace: Workspace) -> bool:
    """Whether MLflow knows the end of every run; a separate process soon reports runs that died."""
    return not any(job.unrecorded.exists() for job in job_requests.all_jobs(workspace))


def records_of(folder: SearchFolder, description: Description) -> list[TrialRecord]:
    request = folder.request()
    return read_study(request.storage, request.study, folder.spec(description))


def finished(records: Sequence[TrialRecord]) -> dict[int, TrialRecord]:
    """The finished trials, by number."""
    return {record.number: record for record in records if record.state == "finished"}


def ended_well(
    folder: SearchFolder, description: Description, before: Mapping[int, TrialRecord], trials: int
) -> list[str]:
    """Wait for the end of a search; returns what is wrong. `before`: trials that had finished before the kill."""
    until(lambda: folder.state() in searches.ENDED, f"the search to end: {folder.state()}")
    until(lambda: is_recorded(folder.workspace), "MLflow to be told of runs that died")
    records = records_of(folder, description)
    wrong = audit(folder, records)
    wrong += [f"trial {number} changed" for number, one in before.items() if records[number].values != one.values]
    ended = sum(1 for record in records if record.state in ("finished", "pruned", "infeasible"))
    if ended != trials or len(records) != trials:
        wrong.append(f"{ended} of {len(records)} trials ended well; {trials} were asked for")
    return wrong


def drill(workspace: Workspace, description: Description, victim: str, number: int) -> list[str]:
    """Run one drill; returns what went wrong, [] if nothing did. The moment is between the starts of the first and the
    last trial."""
    folder = search_requests.start(workspace, BODY, None, name=f"drill {number}", description=description)
    after = random.randrange(TRIALS - 2)
    until(lambda: len(records_of(folder, description)) > after, f"trial {after} to begin")
    time.sleep(random.random())
    earlier = records_of(folder, description)
    before = finished(earlier)
    processes = kill(folder, victim)
    until(lambda: not any(map(ProcessId.alive, processes)), "the victims to be gone")
    killed = time.monotonic()
    supervisor_handle.ensure(workspace)
    wrong = ended_well(folder, description, before, TRIALS)
    print(f"  {victim:<11} after {len(earlier):>2} trials, {len(before):>2} finished; ended "
          f"{time.monotonic() - killed:5.1f} s later: {wrong if wrong else 'as promised'}", flush=True)  # fmt: skip
    return wrong


def kill(folder: SearchFolder, victim: str) -> list[ProcessId]:
    """SIGKILL a victim; returns its processes."""
    driving, now = folder.driving(), supervisor_handle.running(folder.workspace)
    assert driving is not None
    assert now is not None
    victims = {"driver": [driving.process], "supervisor": [now]}.get(victim)
    if victims is None:
        victims = [now, driving.process, *now.descendants()]
        for job in job_requests.all_jobs(folder.workspace):
            if job.state() not in ENDED and (started := job.started()) is not None:
                victims += started.handle.process.session()
    for process in victims:
        process.send(signal.SIGKILL)
    return victims


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=10, help="moments for each victim")
    options.add_argument("--seed", type=int, default=random.randrange(10_000))
    given = options.parse_args()
    random.seed(given.seed)
    print(f"{machine()}\n{given.rounds} moments for each of {', '.join(VICTIMS)}; seed {given.seed}")
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as root:
        workspace = Workspace(Path(root).resolve()).create()
        description = describe(workspace)
        for number in range(given.rounds * len(VICTIMS)):
            wrong += drill(workspace, description, VICTIMS[number % len(VICTIMS)], number)
        until(lambda: supervisor_handle.running(workspace) is None, "the supervisor to leave")
        until(lambda: not any(root in command_line(pid) for pid in psutil.pids()), "every process to be gone")
    print(f"{given.rounds * len(VICTIMS)} drills, {len(wrong)} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
