import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.process import BaseProcess

import psutil
import pytest
from typing_extensions import override

from scalebook.training.base.failures import Diverged, WorkerLost
from scalebook.training.lightning.processes import forked, process_watch
from scalebook.training.lightning.processes.forked import WorkerTraceback
from scalebook.training.lightning.processes.peer_monitor import PeerMonitor
from scalebook.training.lightning.processes.process_watch import LostProcess, Reaction
from scalebook.training.lightning.processes.run_workers import run_workers

pytestmark = pytest.mark.long


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True) if child.status() != psutil.STATUS_ZOMBIE}


def test_results_come_back_in_order_from_processes_of_their_own() -> None:
    results = run_workers(3, lambda worker: (worker, os.getpid()))
    assert [worker for worker, _ in results] == [0, 1, 2]
    assert len({pid for _, pid in results} | {os.getpid()}) == 4


def test_a_worker_s_garbage_collector_leaves_alone_what_it_inherited() -> None:
    """A collection writes to each object that it examines, and so copies its page."""
    inherited: list[list[int]] = [[] for _ in range(50_000)]
    assert len(gc.get_objects()) > len(inherited)
    assert run_workers(1, lambda _worker: len(gc.get_objects()))[0] < len(inherited) / 2


@pytest.mark.filterwarnings("error:This process .* is multi-threaded")
def test_our_forks_do_not_warn_of_other_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python 3.12 and later do, in a process with a second thread."""
    fork = os.fork

    def warns() -> int:
        words = f"This process (pid={os.getpid()}) is multi-threaded, use of fork() may lead to deadlocks in the child."
        warnings.warn(words, DeprecationWarning, stacklevel=2)
        return fork()

    monkeypatch.setattr(os, "fork", warns)
    before = [*warnings.filters]
    assert run_workers(2, lambda worker: worker) == [0, 1]
    assert [*warnings.filters] == before, "people's own forks warn as before"


@pytest.mark.parametrize("times", [2, 10_000])
def test_a_fork_is_tried_again_while_another_thread_forks(times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then filelock's audit hook raises an error, in our fork or in the other."""
    fork, begun = BaseProcess.start, []

    def refused(process: BaseProcess) -> None:
        begun.append(process)
        if len(begun) <= times:
            raise RuntimeError("os.fork is unsafe while filelock is changing descriptor ownership")
        fork(process)

    monkeypatch.setattr(BaseProcess, "start", refused)
    if times == 2:
        assert run_workers(2, lambda worker: worker) == [0, 1]
        return
    with pytest.raises(RuntimeError, match=r"os\.fork is unsafe"):
        run_workers(2, lambda worker: worker)


def test_an_exception_keeps_its_type_and_says_where_it_was_raised() -> None:
    def body(worker: int) -> None:
        if worker == 1:
            raise Diverged("train/loss", float("inf"), 12)
        time.sleep(60)

    started = time.monotonic()
    with pytest.raises(Diverged, match="train/loss became infinite after 12 updates") as caught:
        run_workers(2, body)
    assert time.monotonic() - started < 30  # others sleep for 60
    assert isinstance(caught.value.__cause__, WorkerTraceback)
    assert "in worker 1" in str(caught.value.__cause__)
    assert "test_run_workers.py" in str(caught.value.__cause__)


def test_an_exception_that_cannot_travel_is_described() -> None:
    class Local(Exception):
        pass

    def body(worker: int) -> None:
        raise Local("cannot be pickled")

    with pytest.raises(RuntimeError, match="Local: cannot be pickled"):
        run_workers(1, body)


@pytest.mark.parametrize(
    ("death", "cause"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "was killed by signal SIGKILL"),
        (lambda: os._exit(3), "ended with exit code 3 and without a result"),
        (lambda: os._exit(0), "ended with exit code 0 and without a result"),
    ],
)
def test_a_death_is_noticed_at_once_and_named(death: Callable[[], None], cause: str) -> None:
    before = children()

    def body(worker: int) -> None:
        if worker == 1:
            death()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as a process that hangs in a collective
        time.sleep(60)

    started = time.monotonic()
    with pytest.raises(WorkerLost, match=cause) as caught:
        run_workers(2, body)
    assert caught.value.number == 1
    assert time.monotonic() - started < 30
    assert children() <= before


def test_a_death_counts_more_than_the_errors_it_causes() -> None:
    reading, writing = os.pipe()

    def body(worker: int) -> None:
        if worker == 0:
            os.close(writing)
            os.read(reading, 1)  # returns when worker 1 is gone
            raise ConnectionResetError("peer closed the connection")
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)

    try:
        with pytest.raises(WorkerLost, match="worker 1"):
            run_workers(2, body)
    finally:
        os.close(reading)
        os.close(writing)


def test_an_error_counts_more_than_the_connections_that_it_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker 1 sees worker 0's end, and says so before it, on a machine that is busy."""
    monkeypatch.setattr(process_watch, "ECHO_S", 20.0)  # returns when worker 0 has ended

    def body(worker: int) -> None:
        if worker == 1:
            raise RuntimeError("[gloo/transport/tcp/pair.cc] Connection closed by peer [127.0.0.1]:44929")
        time.sleep(0.1)
        raise Diverged("train/loss", float("inf"), 12)

    with pytest.raises(Diverged, match="train/loss became infinite") as caught:
        run_workers(2, body)
    assert "in worker 0" in str(caught.value.__cause__)


@pytest.mark.parametrize("lingers", [False, True])
def test_other_nodes_hear_of_this_one_before_a_death_only_if_it_takes_long(
    lingers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a node that is cut off each sign of life takes half a second, by which its own deaths were told late."""
    monkeypatch.setattr(process_watch, "DIES_S", 0.1 if lingers else 20.0)  # returns when it has died
    happened: list[str] = []

    class Others(PeerMonitor):
        @override
        def send_heartbeat(self) -> None:
            happened.append("a sign of life")

    def body(worker: int) -> None:
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # its pipe has ended, and others may see it before its death
        time.sleep(0.5 if lingers else 0)
        os._exit(3)

    def lost(_lost: LostProcess) -> Reaction:
        happened.append("the death")
        return Reaction.END

    with pytest.raises(WorkerLost):
        run_workers(1, body, lost=lost, others=Others())
    assert happened == (["a sign of life", "the death"] if lingers else ["the death"])


def test_what_a_killed_worker_had_started_is_ended_too() -> None:
    before = children()
    context = multiprocessing.get_context("fork")

    def body(worker: int) -> None:
        context.Process(target=time.sleep, args=(60,)).start()
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(WorkerLost):
        run_workers(1, body)
    assert children() <= before


def test_sigterm_reaches_worker_0_alone_and_its_answer_is_raised() -> None:
    parent = os.getpid()

    def body(worker: int) -> None:
        def answer(number: int, frame: object) -> None:
            raise SystemExit(f"worker {worker} was asked to stop")

        signal.signal(signal.SIGTERM, answer)
        if worker == 1:
            time.sleep(0.3)
            os.kill(parent, signal.SIGTERM)
        time.sleep(60)

    with pytest.raises(SystemExit, match="worker 0 was asked to stop"):
        run_workers(2, body)


def test_workers_die_with_the_monitor() -> None:
    context = multiprocessing.get_context("fork")
    pids = context.SimpleQueue()

    def body(worker: int) -> None:
        pids.put(os.getpid())
        time.sleep(60)

    monitor = context.Process(target=run_workers, args=(2, body))
    monitor.start()
    workers = [psutil.Process(pids.get()) for _ in range(2)]
    monitor.kill()
    monitor.join(10)
    gone, alive = psutil.wait_procs(workers, timeout=5)
    assert len(gone) == 2, alive


# --- processes of a run, and others ----------------------------------------------------------------------------------


def start_orphan() -> int:
    """The pid of a process whose parent has ended."""
    program = (
        "import subprocess; print(subprocess.Popen(['/bin/sleep', '300'], stdout=subprocess.DEVNULL).pid, flush=True)"
    )
    started = subprocess.run([sys.executable, "-S", "-c", program], check=True, stdout=subprocess.PIPE, timeout=60)
    return int(started.stdout)


def sleeping(**options: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["/bin/sleep", "300"], **options)  # type: ignore[call-overload,no-any-return]


def test_processes_that_another_thread_starts_meanwhile_stay() -> None:
    """A program, and a pool of forked processes."""
    context = multiprocessing.get_context("fork")
    has_begun, may_end = context.Event(), context.Event()
    others: list[subprocess.Popen[bytes]] = []
    pools = []

    def start_others() -> None:
        assert has_begun.wait(60)
        others.append(sleeping())
        with forked.in_turn():  # filelock lets no two threads fork at the same time
            pools.append(context.Pool(1))
        may_end.set()

    def body(worker: int) -> int:
        has_begun.set()
        assert may_end.wait(60)
        return worker

    others.append(sleeping())
    thread = threading.Thread(target=start_others)
    thread.start()
    try:
        assert run_workers(2, body) == [0, 1]
        thread.join(60)
        assert [other.poll() for other in others] == [None, None]
        assert pools[0].apply_async(abs, (-3,)).get(60) == 3
    finally:
        for other in others:
            other.kill()
            other.wait()
        for pool in pools:
            pool.terminate()
            pool.join()


def test_what_a_worker_has_started_ends_with_the_run_whatever_it_is() -> None:
    """Without an environment, in a session of its own, and forked twice."""

    def body(worker: int) -> list[int]:
        plain, apart = sleeping(), sleeping(env={}, start_new_session=True)
        return [plain.pid, apart.pid, start_orphan()]

    pids = [pid for mine in run_workers(2, body) for pid in mine]
    assert len(set(pids)) == 6
    assert [pid for pid in pids if psutil.pid_exists(pid)] == []


def test_runs_of_two_threads_do_not_touch_each_other() -> None:
    """Also while one ends as the other begins, and each with a process that its worker has left behind."""

    def body(worker: int) -> int:
        sleeping()
        time.sleep(0.02 * worker)
        return worker

    def some(_thread: int) -> list[list[int]]:
        return [run_workers(2, body) for _ in range(6)]

    before = children()
    with ThreadPoolExecutor(3) as threads:
        results = list(threads.map(some, range(3)))
    assert results == [[[0, 1]] * 6] * 3
    assert children() <= before


def test_a_worker_that_has_ended_before_it_is_watched_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread that starts a process asks for the exit codes of all: then nothing is left of this one."""
    watch = forked._pidfd

    def late(pid: int) -> int:
        while psutil.pid_exists(pid):
            multiprocessing.active_children()
            time.sleep(0.001)
        return watch(pid)

    monkeypatch.setattr(forked, "_pidfd", late)
    assert run_workers(2, lambda worker: worker) == [0, 1]


def test_a_run_within_a_run_ends_what_it_has_started() -> None:
    def body(worker: int) -> list[bool]:
        started = run_workers(2, lambda _: sleeping().pid)
        return [psutil.pid_exists(pid) for pid in started]

    assert run_workers(2, body) == [[False, False]] * 2


def test_this_process_adopts_nobody_afterwards() -> None:
    def parent_of_orphan() -> int:
        process = psutil.Process(start_orphan())
        try:
            return process.ppid()
        finally:
            process.kill()

    without = parent_of_orphan()
    run_workers(1, lambda worker: worker)
    assert parent_of_orphan() == without != os.getpid()
