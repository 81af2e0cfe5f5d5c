"""What `run_workers` does about processes that die: end, go on, start again; workers and servers."""

import mmap
import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from psutil import STATUS_ZOMBIE

from scalebook.training.base.failures import Diverged, ServerLost, WorkerLost
from scalebook.training.lightning.processes.forked import WorkerTraceback
from scalebook.training.lightning.processes.process_watch import LostProcess, Reaction
from scalebook.training.lightning.processes.run_workers import run_workers

pytestmark = pytest.mark.long

FORK = multiprocessing.get_context("fork")


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True) if child.status() != STATUS_ZOMBIE}


@pytest.fixture(autouse=True)
def _nobody_is_left() -> Iterator[None]:
    before = children()
    yield
    assert children() <= before


@pytest.fixture
def shared() -> memoryview:
    """64 bytes of zeros that all processes see; cell 0 is for the number of starts."""
    return memoryview(mmap.mmap(-1, 64))


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def always(reaction: Reaction, seen: list[LostProcess]) -> Callable[[LostProcess], Reaction]:
    def lost(one: LostProcess) -> Reaction:
        seen.append(one)
        return reaction

    return lost


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.001)


@pytest.mark.parametrize("victim", [0, 1])
def test_the_others_go_on_and_only_the_lost_ones_result_is_missing(victim: int) -> None:
    seen: list[LostProcess] = []

    def body(worker: int) -> int:
        if worker == victim:
            die()
        time.sleep(0.3)
        return worker

    results = run_workers(3, body, lost=always(Reaction.GO_ON, seen))
    assert results == [None if worker == victim else worker for worker in range(3)]
    assert [(one.role, one.number) for one in seen] == [("worker", victim)]
    assert "was killed by signal SIGKILL" in seen[0].cause


def test_a_loss_is_told_to_the_policy_at_once(shared: memoryview) -> None:
    times = shared.cast("d")  # of CLOCK_MONOTONIC, the same in all processes

    def lost(_one: LostProcess) -> Reaction:
        times[1] = time.monotonic()
        return Reaction.GO_ON

    def body(worker: int) -> float:
        if worker == 0:
            times[0] = time.monotonic()
            die()
        until(lambda: times[1])
        return times[1] - times[0]

    assert run_workers(2, body, lost=lost)[1] < 5  # quiet: 35 to 60 ms, most of it the end of the process itself


def test_when_all_workers_are_lost_the_last_one_is_named(shared: memoryview) -> None:
    def lost(_one: LostProcess) -> Reaction:
        shared[0] += 1
        return Reaction.GO_ON

    def body(worker: int) -> None:
        until(lambda: worker != 1 or shared[0] == 2)
        die()

    with pytest.raises(WorkerLost, match="worker 1 died") as caught:
        run_workers(3, body, lost=lost)
    assert caught.value.number == 1


def test_losing_the_last_one_that_runs_is_fine_when_another_has_finished() -> None:
    def body(worker: int) -> str:
        if worker == 1:
            time.sleep(0.3)
            die()
        return "done"

    assert run_workers(2, body, lost=always(Reaction.GO_ON, [])) == ["done", None]


def test_a_worker_is_started_again_and_holds_no_more_than_the_first_time(shared: memoryview) -> None:
    """Descriptors by kind: a pipe or a pidfd of another process would keep that alive or hide its end."""
    seen: list[LostProcess] = []

    def held() -> Counter[str]:
        links = [
            os.readlink(f"/proc/self/fd/{number}")
            for number in os.listdir("/proc/self/fd")
            if Path(f"/proc/self/fd/{number}").is_symlink()
        ]
        return Counter(
            link.partition("[")[0] + link.partition("[")[2].partition("]")[0] * ("pidfd" in link) for link in links
        )

    def body(worker: int) -> tuple[int, Counter[str]]:
        if worker == 1:
            shared[0] += 1
            if shared[0] < 4:
                die()
            shared[1] = 1
        until(lambda: shared[1])
        return shared[0], held()

    outside = held()
    results = run_workers(2, body, lost=always(Reaction.RESTART, seen))
    assert [(one.role, one.number) for one in seen] == [("worker", 1)] * 3
    assert [starts for starts, _ in results] == [4, 4]
    for _, inside in results:
        assert inside["anon_inode:pidfd"] == outside["anon_inode:pidfd"] == 0
    alone = run_workers(1, lambda _: held())[0]
    assert results[0][1] == alone
    assert sum((results[1][1] - alone).values()) <= 2, "more than the parent's ends of one sentinel"


def test_what_a_lost_worker_had_started_ends_while_the_others_go_on() -> None:
    reading, writing = FORK.Pipe(duplex=False)

    def body(worker: int) -> bool:
        if worker == 0:
            helper = FORK.Process(target=time.sleep, args=(60,))
            helper.start()
            writing.send(helper.pid)
            die()
        helper_pid = reading.recv()
        until(lambda: not psutil.pid_exists(helper_pid))
        return True

    with reading, writing:
        assert run_workers(2, body, lost=always(Reaction.GO_ON, [])) == [None, True]


def test_an_exception_of_a_restarted_worker_ends_the_run(shared: memoryview) -> None:
    def body(worker: int) -> None:
        shared[0] += 1
        if shared[0] == 1:
            die()
        raise Diverged("train/loss", float("inf"), shared[0])

    with pytest.raises(Diverged, match="after 2 updates"):
        run_workers(1, body, lost=always(Reaction.RESTART, []))


def test_an_error_beside_a_loss_that_the_run_survives_keeps_its_type() -> None:
    def body(worker: int) -> None:
        if worker == 0:
            time.sleep(0.2)
            raise Diverged("train/loss", float("nan"), 3)
        die()

    with pytest.raises(Diverged):
        run_workers(2, body, lost=always(Reaction.GO_ON, []))


def test_what_the_policy_raises_ends_the_run() -> None:
    def lost(one: LostProcess) -> Reaction:
        raise TimeoutError(f"gave {one.role} {one.number} up")

    with pytest.raises(TimeoutError, match="gave worker 0 up"):
        run_workers(2, lambda worker: die() if worker == 0 else time.sleep(60), lost=lost)


def test_a_death_in_the_middle_of_the_last_message_is_a_death() -> None:
    class Dying:
        def __reduce__(self) -> str:
            die()
            raise AssertionError

    with pytest.raises(WorkerLost, match="SIGKILL"):
        run_workers(1, lambda _: Dying())


def test_servers_run_beside_the_workers_and_end_by_themselves(shared: memoryview) -> None:
    def body(worker: int) -> int:
        until(lambda: shared[0] and shared[1])
        shared[2] = 1
        return worker

    def serve(server: int) -> None:
        shared[server] = 1
        until(lambda: shared[2])
        time.sleep(0.2)
        shared[8 + server] = 1

    assert run_workers(2, body, servers=2, serve=serve) == [0, 1]
    assert (shared[8], shared[9]) == (1, 1), "it was not given the time to end"


def test_a_server_that_does_not_end_is_made_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scalebook.training.lightning.processes.process_watch.GRACE_S", 0.5)

    def serve(server: int) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(60)

    started = time.monotonic()
    assert run_workers(1, lambda _: "done", servers=1, serve=serve) == ["done"]
    assert time.monotonic() - started < 40


def test_a_lost_server_ends_the_run_and_is_named() -> None:
    with pytest.raises(ServerLost, match=r"server 1 died: process \d+ was killed by signal SIGKILL") as caught:
        run_workers(2, lambda _: time.sleep(60), servers=2, serve=lambda s: die() if s == 1 else time.sleep(60))
    assert caught.value.number == 1


def test_a_lost_server_is_started_again(shared: memoryview) -> None:
    seen: list[LostProcess] = []

    def serve(server: int) -> None:
        shared[0] += 1
        if shared[0] == 1:
            die()
        until(lambda: shared[1])

    def body(worker: int) -> int:
        until(lambda: shared[0] == 2)
        shared[1] = 1
        return worker

    assert run_workers(2, body, servers=1, serve=serve, lost=always(Reaction.RESTART, seen)) == [0, 1]
    assert [(one.role, one.number) for one in seen] == [("server", 0)]


def test_a_servers_exception_ends_the_run_with_its_type() -> None:
    def serve(server: int) -> None:
        raise Diverged("train/loss", 1.0, 5)

    with pytest.raises(Diverged) as caught:
        run_workers(1, lambda _: time.sleep(60), servers=1, serve=serve)
    assert isinstance(caught.value.__cause__, WorkerTraceback)
    assert "in server 0" in str(caught.value.__cause__)


def test_nobody_is_started_again_after_a_sigterm(shared: memoryview) -> None:
    """SIGTERM goes to worker 0, which ends in order; a worker that dies meanwhile stays dead."""
    monitor = os.getpid()

    def body(worker: int) -> str:
        if worker == 1:
            shared[0] += 1
            until(lambda: shared[1])
            die()
        asked: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, _frame: asked.append(number))
        os.kill(monitor, signal.SIGTERM)
        until(lambda: asked)
        shared[1] = 1
        time.sleep(0.5)
        return "asked"

    assert run_workers(2, body, lost=always(Reaction.RESTART, [])) == ["asked", None]
    assert shared[0] == 1


def test_sigterm_reaches_the_first_worker_that_lives(shared: memoryview) -> None:
    monitor = os.getpid()

    def lost(_one: LostProcess) -> Reaction:
        shared[0] = 1
        return Reaction.GO_ON

    def body(worker: int) -> list[int]:
        if worker == 0:
            die()
        asked: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, _frame: asked.append(number))
        until(lambda: shared[0])
        time.sleep(0.3)  # until the monitor has let go of worker 0
        if worker == 1:
            os.kill(monitor, signal.SIGTERM)
            until(lambda: asked)
            shared[1] = 1
        until(lambda: shared[1])
        time.sleep(0.2)  # for what must not come
        return asked

    assert run_workers(3, body, lost=lost) == [None, [signal.SIGTERM], []]
