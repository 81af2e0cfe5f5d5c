"""What becomes of jobs when a part of a Ray cluster dies: `python -m benchmarks.cluster_deaths [KIND ...]`, as root.

Each drill has two nodes of its own: network namespaces with Ray's real daemons, and jobs on both while others wait. A
ledger outside the cluster says which job began and which finished: none may begin twice, and no finished job may be
lost. `search`: a search of 24 short trials over both, of which one is killed with everything on it; no trial may be
lost, and none may run twice. Needs the extra `cluster`. Read the last line of each drill: "as promised", or what was
wrong, and then the exit code is 1. Two to seven minutes a drill.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Final

from benchmarks.common import Others, command_line, parser, until
from benchmarks.search_drills import BODY, ended_well, finished, records_of
from scalebook.training.base.safe_path import environment, python
from scalebook.training.base.trust import trust
from scalebook.training.base.workspace import SETTINGS, Workspace
from scalebook.training.cluster.cluster_spool import ClusterSpool
from scalebook.training.experiments.catalogue import describe
from scalebook.training.jobs import job_requests, supervisor_handle
from scalebook.training.jobs.job_folder import JobFolder
from scalebook.training.jobs.waiting_jobs import waiting_reasons
from scalebook.training.search import search_requests
from tests.cluster.namespaces import Namespaces, namespaces, why_not
from tests.training.benches import Bench, clear

TOLD_S: Final = 240.0
LONG_S: Final = 400.0
"""Seconds of a job that is to be lost: longer than any wait."""
SHORT_S: Final = 25.0
PAUSE_S: Final = 10.0
TRIALS: Final = 24


class Kind(StrEnum):
    FROZEN = "frozen"
    FROZEN_SHORTLY = "frozen-shortly"
    CUT = "cut"
    CUT_SHORTLY = "cut-shortly"
    HEAD = "head"
    ALL = "all-of-ray"
    SEARCH = "search"

    @property
    def is_short(self) -> bool:
        """Whether everything must go on afterwards as if nothing had happened."""
        return self in (Kind.FROZEN_SHORTLY, Kind.CUT_SHORTLY)


class Drill:
    """Node 0 (`a`) is the head and has the notebooks and this process; node 1 is `b`."""

    def __init__(self, kind: Kind, machines: Namespaces, root: Path) -> None:
        self.kind, self.machines, self.root = kind, machines, root
        self.homes = [root / "a", root / "b"]
        self.ledger = root / "ledger"
        self.wrong: list[str] = []

    def command(self, machine: int, *words: str, codes: tuple[int, ...] = (0,)) -> None:
        inside = ["ip", "netns", "exec", self.machines.names[machine], *python("-m", "scalebook", "cluster", *words)]
        env = environment(XDG_STATE_HOME=str(self.homes[machine]))
        done = subprocess.run(inside, env=env, check=False, timeout=180, text=True, capture_output=True)
        assert done.returncode in codes, done.stdout + done.stderr

    def up(self) -> None:
        head, token = self.machines.addresses[0], self.homes[0] / "scalebook" / "cluster" / "token"
        self.command(0, "start", "--host", head, "--name", "a", "--cores", "1")
        self.command(1, "start", "--join", f"{head}:6379", "--name", "b", "--cores", "1", "--token", str(token))

    def perform(self) -> None:
        os.environ["XDG_STATE_HOME"] = str(self.homes[0])
        (self.root / "notebooks").mkdir()
        (self.root / "notebooks" / SETTINGS).write_text('[cluster]\naddress = "auto"\nfiles = "copied"\n')
        self.up()
        bench = Bench((self.root / "notebooks").resolve())
        trust(bench.workspace)
        try:
            if self.kind is Kind.SEARCH:
                self._search(bench.workspace)
            else:
                self._with(bench)
        finally:
            clear(bench.workspace, bench.supervisors)

    def _with(self, bench: Bench) -> None:
        seconds = SHORT_S if self.kind.is_short else LONG_S
        first = [bench.job(seconds=seconds, ledger=str(self.ledger)) for _ in range(2)]
        bench.supervise()
        until(lambda: {_where(job) for job in first} == {"a", "b"}, "a job on each machine", TOLD_S)
        there = next(job for job in first if _where(job) == "b")
        waiting = [bench.job(seconds=0.5, ledger=str(self.ledger)) for _ in range(3)]
        began = time.monotonic()
        mend = self.harm()
        if self.kind.is_short:
            time.sleep(PAUSE_S)
            mend()
        else:
            self._told(bench, first, there, waiting, began)
            mend()
            until(lambda: not _left(self.machines, first), "processes of lost jobs to be gone", TOLD_S)
        until(lambda: all(job.result() for job in (*first, *waiting)), "all jobs to end", TOLD_S)
        print(f"{time.monotonic() - began:6.1f} s  all jobs have ended", flush=True)
        self._account(first, waiting)

    def _search(self, workspace: Workspace) -> None:
        """Kill b when some trials have finished and one is running there."""
        description = describe(workspace)
        body = {**BODY, "trials": TRIALS}
        folder = search_requests.start(workspace, body, None, name="over two nodes", description=description)
        until(lambda: len(finished(records_of(folder, description))) >= TRIALS // 4, "trials to finish", TOLD_S)
        until(lambda: _running(workspace)["b"], "a trial on b", TOLD_S)
        before = finished(records_of(folder, description))
        _send(self.machines.processes(1), signal.SIGKILL)
        killed = time.monotonic()
        until(lambda: not _running(workspace)["b"], "the jobs on b to be given up", TOLD_S)
        print(f"{time.monotonic() - killed:6.1f} s  noticed, after {len(before)} trials", flush=True)
        self.wrong += ended_well(folder, description, before, TRIALS)
        where = Counter(_where(job) for job in job_requests.all_jobs(workspace))
        print(f"{time.monotonic() - killed:6.1f} s  the search has ended; runs by node: {dict(where)}", flush=True)
        until(lambda: supervisor_handle.running(workspace) is None, "the supervisor to leave", TOLD_S)

    def harm(self) -> Callable[[], object]:
        """Do the damage; returns what repairs it."""
        if self.kind in (Kind.CUT, Kind.CUT_SHORTLY):
            self.machines.cut(1)
            return lambda: self.machines.restore(1)
        if self.kind in (Kind.FROZEN, Kind.FROZEN_SHORTLY):
            frozen = self.machines.processes(1)
            _send(frozen, signal.SIGSTOP)
            return lambda: _send(frozen, signal.SIGCONT)
        of_ray = [pid for n in (0, 1) for pid in self.machines.processes(n) if _is_rays(pid)]
        _send([pid for pid in of_ray if self.kind is Kind.ALL or "gcs_server" in command_line(pid)], signal.SIGKILL)
        return lambda: None

    def _told(
        self, bench: Bench, first: list[JobFolder], there: JobFolder, waiting: list[JobFolder], began: float
    ) -> None:
        until(there.result, "the job on b to be given up", TOLD_S)
        self._say(there, began)
        if self.kind in (Kind.HEAD, Kind.ALL):
            here = next(job for job in first if job is not there)
            until(here.result, "the job on a to be given up", TOLD_S)
            self._say(here, began)
            states = [job.state() for job in waiting]
            print(f"          waiting: {states[0]}, {waiting_reasons(bench.workspace).get(waiting[0].id)!r}")
            if set(states) != {"waiting"}:
                self.wrong.append(f"jobs that had not begun are {states}")
            for machine in (1, 0):  # what a person does then
                self.command(machine, "stop", codes=(0, 1))
            self.up()
        else:
            here = next(job for job in first if job is not there)
            if here.state() != "running":
                self.wrong.append(f"the job on a is {here.state()}")
            here.ask_to_stop("the drill is over")

    def _account(self, first: list[JobFolder], waiting: list[JobFolder]) -> None:
        lines = [line.split()[:2] for line in self.ledger.read_text(encoding="utf-8").splitlines()]
        began = Counter(job for what, job in lines if what == "began")
        ended = {job for what, job in lines if what == "ended"}
        self.wrong += [f"{job} began {times} times" for job, times in began.items() if times != 1]
        for job in (*first, *waiting):
            state = job.state()
            if (job.id in ended) != (state == "finished"):
                self.wrong.append(f"{job.request().title} is {state}; came to its end: {job.id in ended}")
        good = (*first, *waiting) if self.kind.is_short else waiting
        self.wrong += [f"{job.request().title} is {job.state()}" for job in good if job.state() != "finished"]

    def _say(self, job: JobFolder, began: float) -> None:
        result = job.result()
        assert result is not None
        print(f"{time.monotonic() - began:6.1f} s  {result.status}: {result.why}", flush=True)

    def close(self) -> None:
        for process in self.machines.processes(1):
            _send([process], signal.SIGCONT)
        self.machines.restore(1)
        for machine in (1, 0):
            self.command(machine, "stop", codes=(0, 1))


def _where(job: JobFolder) -> str:
    started = job.started()
    return started.machine if started is not None else ""


def _running(workspace: Workspace) -> "Counter[str]":
    """Running jobs by node."""
    return Counter(_where(job) for job in job_requests.open_jobs(workspace) if job.state() in ("running", "stopping"))


def _send(processes: list[int], what: signal.Signals) -> None:
    for pid in processes:
        try:
            os.kill(pid, what)
        except ProcessLookupError:
            continue


def _is_rays(pid: int) -> bool:
    line = command_line(pid)
    return "/ray/" in line or "ray." in line or line.startswith("ray::")


def _left(machines: Namespaces, jobs: list[JobFolder]) -> list[int]:
    """Processes of jobs that have ended."""
    lost = {pid for job in jobs if job.result() and (started := job.started()) for pid in [started.handle.process.pid]}
    return [pid for n in (0, 1) for pid in machines.processes(n) if pid in lost]


def drill(kind: Kind) -> list[str]:
    """Run one drill; returns what went wrong. This process stays on node 0."""
    with namespaces(2) as made, tempfile.TemporaryDirectory(prefix="sb-") as root:
        made.enter(0)
        one = Drill(kind, made, Path(root))
        try:
            one.perform()
        except (AssertionError, TimeoutError) as error:
            spool = ClusterSpool(Bench((Path(root) / "notebooks").resolve()).workspace)
            one.wrong.append(f"{error}; {spool.machines()}")
        finally:
            one.close()
        return one.wrong


def main() -> int:
    options = parser(__doc__)
    options.add_argument("kinds", nargs="*", type=Kind, help=f"of {', '.join(Kind)}; by default all")
    kinds = options.parse_args().kinds
    if missing := why_not():
        print(f"skipped: {missing}")
        return 0
    if len(kinds) == 1:
        wrong = drill(kinds[0])
        print(f"{kinds[0]}: {'; '.join(wrong) or 'as promised'}", flush=True)
        return 1 if wrong else 0
    others = Others()
    codes = [
        subprocess.run(python("-m", "benchmarks.cluster_deaths", name), env=environment(), check=False).returncode
        for name in kinds or Kind
    ]
    print(others.sentence())
    return 1 if any(codes) else 0


if __name__ == "__main__":
    sys.exit(main())
