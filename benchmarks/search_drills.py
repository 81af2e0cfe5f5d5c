"""Searches killed at random moments, and resumed: `python -m benchmarks.search_drills [--rounds N]`.

Each drill begins a search over a small classifier on digits, kills one of three victims at a random moment (the driver;
the supervisor; everything of the workspace, as if the machine had stopped: supervisor, driver, fork server and all
training), resumes the search, and checks the result: no trial lost, none run twice, MLflow, study and jobs in
agreement, nothing left behind. Exits with 1 if anything is not as promised. About 30 s a drill.
"""

import argparse
import random
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks import waiting
from benchmarks.common import machine
from benchmarks.search_audit import audit, is_recorded
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments.catalogue import describe
from scalebook.training.experiments.description import Description
from scalebook.training.jobs import job_requests, supervisor_handle
from scalebook.training.jobs.job_folder import ENDED
from scalebook.training.jobs.process import ProcessId, alive, descendants, send, session
from scalebook.training.search import search_folder as searches
from scalebook.training.search import search_requests
from scalebook.training.search.search_folder import SearchFolder
from scalebook.training.search.study.study_reader import read
from scalebook.training.search.study.trials import TrialRecord

DEADLINE_S: Final = 240.0
until = partial(waiting.until, deadline_s=DEADLINE_S)
VICTIMS: Final = ("driver", "supervisor", "everything")
TRIALS: Final = 12
BODY: Final[dict[str, Any]] = {
    "config": {
        "seed_everything": 1,
        "trainer": {"max_epochs": 4, "accelerator": "cpu"},
        "model": {"class_path": "scalebook.training.zoo.models.MLPClassifier"},
        "data": {"class_path": "scalebook.training.zoo.data.Digits", "init_args": {"batch_size": 64}},
        "optimizer": {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.02}},
    },
    "objective": "val/loss",
    "space": {"batch_size": {"powers_of_two": [16, 256]}, "learning_rate": {"log_uniform": [0.001, 0.2]}},
    "trials": TRIALS,
    "pruner": "median",
}


def records_of(folder: SearchFolder, description: Description) -> list[TrialRecord]:
    request = folder.request()
    return read(request.storage, request.study, folder.spec(description))


def drill(workspace: Workspace, description: Description, victim: str, number: int) -> list[str]:
    """Run one drill; returns what went wrong, [] if nothing did. The moment is between the starts of the first and the
    last trial."""
    folder = search_requests.start(workspace, BODY, None, name=f"drill {number}", description=description)
    begun = partial(_trials, folder, description)
    after = random.randrange(TRIALS - 2)
    until(lambda: begun() > after, f"trial {after} to begin")
    time.sleep(random.random())
    earlier = records_of(folder, description)
    finished = {record.number: record for record in earlier if record.state == "finished"}
    processes = kill(folder, victim)
    until(lambda: not any(map(alive, processes)), "the victims to be gone")
    killed = time.monotonic()
    supervisor_handle.ensure(workspace)
    until(lambda: folder.state() in searches.ENDED, f"the search to end: {folder.state()}")
    until(lambda: is_recorded(workspace), "MLflow to be told of runs that died")
    records = records_of(folder, description)
    wrong = audit(folder, records)
    wrong += [
        f"trial {trial_number} changed"
        for trial_number, before in finished.items()
        if records[trial_number].values != before.values
    ]
    ended = sum(1 for record in records if record.state in ("finished", "pruned", "infeasible"))
    if ended != TRIALS or len(records) != TRIALS:
        wrong.append(f"{ended} of {len(records)} trials ended well; {TRIALS} were asked for")
    went_on = time.monotonic() - killed
    print(f"  {victim:<11} after {len(earlier):>2} trials, {len(finished):>2} finished; ended {went_on:5.1f} s later: "
          f"{wrong if wrong else 'as promised'}", flush=True)  # fmt: skip
    return wrong


def _trials(folder: SearchFolder, description: Description) -> int:
    return len(records_of(folder, description))


def kill(folder: SearchFolder, victim: str) -> list[ProcessId]:
    """SIGKILL a victim; returns its processes."""
    driving, now = folder.driving(), supervisor_handle.running(folder.workspace)
    assert driving is not None
    assert now is not None
    victims = {"driver": [driving.process], "supervisor": [now]}.get(victim)
    if victims is None:
        victims = [now, driving.process, *descendants(now)]
        for job in job_requests.all_jobs(folder.workspace):
            if job.state() not in ENDED and (started := job.started()) is not None:
                victims += session(started.handle.process)
    for process in victims:
        send(process, signal.SIGKILL)
    return victims


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_drills", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="moments for each victim")
    parser.add_argument("--seed", type=int, default=None)
    options: Any = parser.parse_args()
    seed = options.seed if options.seed is not None else random.randrange(10_000)
    random.seed(seed)
    print(f"{machine()}\n{options.rounds} moments for each of {', '.join(VICTIMS)}; seed {seed}")
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as root:
        workspace = Workspace(Path(root).resolve()).create()
        description = describe(workspace)
        for number in range(options.rounds):
            for victim in VICTIMS:
                wrong += drill(workspace, description, victim, number * len(VICTIMS) + VICTIMS.index(victim))
        until(lambda: supervisor_handle.running(workspace) is None, "the supervisor to leave")
        until(lambda: not _left(root), "every process to be gone")
    print(f"{options.rounds * len(VICTIMS)} drills, {len(wrong)} faults")
    return 1 if wrong else 0


def _left(root: str) -> list[int]:
    """Processes with the workspace on their command line."""
    return [process.pid for process in psutil.process_iter() if root in _words(process)]


def _words(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


if __name__ == "__main__":
    sys.exit(main())
