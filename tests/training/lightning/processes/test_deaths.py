"""What happens to a run when one of its processes dies, raises or is asked to stop; under both strategies."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.strategies import Strategy
from lightning.pytorch.utilities.exceptions import SIGTERMException

from scalebook.training.base.failures import Diverged, WorkerLost
from scalebook.training.engine.launch import Launch
from scalebook.training.engine.rules.settings import Settings
from scalebook.training.lightning import DDP, AsyncPS
from scalebook.training.lightning.processes.deaths import SERVER_RESTARTS, Deaths, HearsOfDeaths, resume_hint
from scalebook.training.lightning.processes.process_watch import LostProcess, Reaction
from tests.training.lightning.async_ps.small import AtBatch, Diary, diaries, fit, kill_me, trainer

Make = Callable[[], Strategy]


def two_async() -> Strategy:
    return AsyncPS(workers=2)


STRATEGIES = pytest.mark.parametrize("make", [two_async, DDP], ids=["async", "ddp"])


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True) if child.status() != psutil.STATUS_ZOMBIE}


def endless(folder: Path, make: Make, *callbacks: Any) -> Trainer:
    return trainer(folder, make(), devices=2, max_epochs=100_000, callbacks=list(callbacks))


@pytest.mark.parametrize(("make", "worker"), [(two_async, 0), (DDP, 0), (DDP, 1)], ids=["async-0", "ddp-0", "ddp-1"])
def test_a_killed_worker_ends_the_run_and_is_named(tmp_path: Path, make: Make, worker: int) -> None:
    before, started = children(), time.monotonic()
    with pytest.raises(WorkerLost, match=rf"worker {worker} died: process .* was killed by signal SIGKILL") as caught:
        fit(endless(tmp_path, make, AtBatch(worker, 20, kill_me)))
    assert caught.value.number == worker
    assert time.monotonic() - started < 60  # of an endless run
    assert children() <= before


def diverge(trainer: Trainer) -> None:
    raise Diverged("train/loss", float("nan"), 20)


@STRATEGIES
@pytest.mark.parametrize("worker", [0, 1])
def test_an_exception_arrives_with_its_type_and_callbacks_see_it_where_it_was(
    tmp_path: Path, make: Make, worker: int
) -> None:
    before, started = children(), time.monotonic()
    with pytest.raises(Diverged, match="train/loss became NaN after 20 updates"):
        fit(endless(tmp_path, make, AtBatch(worker, 20, diverge), Diary(tmp_path)))
    assert time.monotonic() - started < 60  # of an endless run
    assert children() <= before
    notes = [one for one in diaries(tmp_path) if "Diverged" in one["errors"]]
    assert len(notes) == 1
    assert notes[0]["pid"] != os.getpid()


@STRATEGIES
def test_sigterm_ends_all_workers_gracefully(tmp_path: Path, make: Make) -> None:
    monitor, before, started = os.getpid(), children(), time.monotonic()
    ask = AtBatch(1, 20, lambda trainer: os.kill(monitor, signal.SIGTERM))
    with pytest.raises(SIGTERMException):
        fit(endless(tmp_path, make, ask, Diary(tmp_path)))
    assert time.monotonic() - started < 60  # of an endless run
    assert children() <= before
    assert diaries(tmp_path)[0]["errors"] == ["SIGTERMException"]


def test_what_goes_on_without_a_worker_still_ends_gracefully(tmp_path: Path) -> None:
    monitor, before, started = os.getpid(), children(), time.monotonic()
    stop = AtBatch(0, 60, lambda trainer: os.kill(monitor, signal.SIGTERM))
    with pytest.raises(SIGTERMException):
        fit(endless(tmp_path, two_async, AtBatch(1, 20, kill_me), stop, Diary(tmp_path)))
    assert time.monotonic() - started < 60  # of an endless run
    assert children() <= before
    assert [one["errors"] for one in diaries(tmp_path)] == [["SIGTERMException"]]  # of worker 0: the other left none


def test_what_follows_a_death_is_a_matter_of_who_it_was_and_how_many_there_were() -> None:
    launch = Launch(3, Settings())
    deaths = Deaths(launch, restarts=1)
    assert deaths.react(LostProcess("worker", 2, "killed")) is Reaction.RESTART
    assert launch.living() == [0, 1, 2]
    assert deaths.react(LostProcess("worker", 1, "killed")) is Reaction.GO_ON
    assert launch.living() == [0, 2], "nobody waits for it"
    servers = [deaths.react(LostProcess("server", 0, "killed")) for _ in range(SERVER_RESTARTS + 1)]
    assert servers == [*SERVER_RESTARTS * [Reaction.RESTART], Reaction.END]
    assert Deaths(launch, restarts=1).react(LostProcess("worker", 0, "killed")) is Reaction.END
    launch.close()


class Hearer(HearsOfDeaths):
    def __init__(self) -> None:
        self.heard: list[tuple[int, str, int, bool]] = []

    def worker_died(self, lost: LostProcess, samples: int, *, restarted: bool) -> None:
        self.heard.append((lost.number, lost.cause, samples, restarted))


def test_who_died_while_the_others_went_on_is_told_with_what_it_had_trained() -> None:
    launch, hearer = Launch(3, Settings()), Hearer()
    deaths = Deaths(launch, restarts=1)
    deaths.hearers = [hearer]
    launch.worker(1, 10.0).add_samples(24)
    for role, number in (("worker", 1), ("server", 0), ("worker", 2), ("worker", 0)):
        deaths.react(LostProcess(role, number, "killed"))  # type: ignore[arg-type]
    assert hearer.heard == [(1, "killed", 24, True), (2, "killed", 0, False)]
    launch.close()


def stop_once_alone(trainer: Trainer) -> None:
    strategy: Any = trainer.strategy
    deadline = time.monotonic() + 60
    while strategy.figures.living() != [0]:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    trainer.should_stop = True


HEARD = Hearer()
"""In the process that called fit: a callback's own attributes come back from worker 0."""


class Recording(Callback, HearsOfDeaths):
    def worker_died(self, lost: LostProcess, samples: int, *, restarted: bool) -> None:
        HEARD.worker_died(lost, samples, restarted=restarted)


def test_callbacks_hear_of_a_lost_worker_in_the_process_that_called_fit(tmp_path: Path) -> None:
    HEARD.heard.clear()
    made = endless(tmp_path, two_async, AtBatch(1, 20, kill_me), AtBatch(0, 20, stop_once_alone), Recording())
    fit(made)
    ((worker, cause, samples, restarted),) = HEARD.heard
    assert (worker, restarted) == (1, False)
    strategy: Any = made.strategy
    assert strategy.hands_on_data
    assert "was killed by signal SIGKILL" in cause
    assert samples == 0, "no callback of ours counts them here"


def test_a_death_names_the_newest_checkpoint_that_is_there(tmp_path: Path) -> None:
    error = WorkerLost(0, "killed")
    noted, kept, gone = (tmp_path / name for name in ("noted", "kept", "gone"))
    assert resume_hint(error, gone, []) is error
    for age, path in ((9, kept), (5, noted)):
        path.touch()
        os.utime(path, (100 - age, 100 - age))
    callback: Any = type("Keeps", (), {"path": kept})()
    found = resume_hint(error, noted, [callback])
    assert (type(found), found.number, found.cause) == (WorkerLost, 0, f"killed. Resume from {noted}")
