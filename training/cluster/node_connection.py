"""The cluster daemon's connection to one node: passes requests on to its jobs, and fetches what they write."""

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from scalebook.training.base.files import BrokenRecord, records
from scalebook.training.cluster.agent import JobNews
from scalebook.training.cluster.cluster_spool import (
    ClusterSpool,
    JobOrder,
    RemoteState,
    has_failed_to_start,
    state_of,
    write_state,
)
from scalebook.training.cluster.incoming_files import IncomingFiles
from scalebook.training.cluster.mlflow_relay import MlflowRelay
from scalebook.training.cluster.outgoing_files import parcel
from scalebook.training.cluster.rendezvous import Gathering
from scalebook.training.jobs import CLAIMED_ELSEWHERE, JobFolder, JobStart, begin_request
from scalebook.training.tracking import names

SILENT_S: Final = 20.0
"""How long an agent may take to answer, s; then the node counts as away, and jobs that have not started there go to
another one."""
CALL_S: Final = 30.0
"""How long an agent may take to receive a piece of a file, s."""
LISTEN_S: Final = 1.0
TURN_S: Final = 0.02
RECORD_S: Final = 60.0
"""How long the store may take for what an ended job has logged, s; after that only the supervisor's record of its end
is written."""
CHUNK: Final = 2**22

Call = Callable[..., Any]
"""`call(method, *arguments)` calls the agent and waits for the answer."""


@dataclass
class _Remote:
    """A job on this machine."""

    folder: JobFolder
    brought: IncomingFiles
    state: RemoteState
    permitted: bool = False
    stop_told: bool = False
    shared: bool = False
    ending_since: float = 0.0
    news: JobNews | None = None
    parts: list[str] = field(default_factory=list)
    """For the first node's job: its parts, which start with it or not at all."""
    refused: bool = False
    """Its process was told not to begin; when it has ended, this start of the job is given up."""


class AgentLink:
    """`call` raises Ray's errors if the node does not answer; no state here is lost then."""

    def __init__(
        self, spool: ClusterSpool, machine: str, agent: str, call: Call, recording: MlflowRelay, gathering: Gathering
    ) -> None:
        self.spool, self.machine, self.agent, self.call, self.recording = spool, machine, agent, call, recording
        self.gathering = gathering
        self.jobs: dict[str, _Remote] = {}
        self._seen: dict[str, int] = {}
        self._there: set[str] = set()
        """Hashes of files that the agent has."""

    def adopt(self, folder: JobFolder, state: RemoteState) -> None:
        """Take over a job from an earlier cluster daemon."""
        if folder.id not in self.jobs:
            self.jobs[folder.id] = _Remote(folder, IncomingFiles(folder.path), state, permitted=False)
            self.recording.watch(folder)

    def send(self, order: JobOrder) -> None:
        """Start the job, unless it is known already: asked twice, it starts once."""
        folder = JobFolder(self.spool.folder_of(order.job))
        if order.job not in self.jobs:
            if folder.claimed() or not folder.path.exists() or self._is_off(order):
                self._refused(folder, order.parts)
                return
            where = self.gathering.meet(begin_request.run_of(order.job), order.first) if order.first else None
            if order.first and where is None:
                return  # the order stays until its first machine answers
            packed, paths = parcel(self.spool.workspace, folder, order, where)
            lacking = sorted(set(packed.hashes).difference(self._there, packed.files.values()))
            for digest in self.call("missing", lacking) if lacking else ():
                self._put(digest, paths[digest])
            self._there.update(lacking)
            self.call("start", packed, [paths[digest].read_bytes() for digest in packed.files.values()])
            self.jobs[order.job] = _Remote(folder, IncomingFiles(folder.path), RemoteState(), parts=order.parts)
            self.recording.watch(folder)
        self.spool.order_done(order.job)

    def pass_on(self) -> None:
        """Pass requests on to jobs: those of the spool, and those by the file `stop` in a job's folder."""
        for name, action in self.spool.pending_requests():
            if name in self.jobs:
                if action != "withdraw":
                    self.call("ask", name, action)
                elif not self.jobs[name].permitted:
                    self._refused(self.jobs[name].folder)
                self.spool.passed_on(name, action)
        for remote in self.jobs.values():
            if remote.stop_told or not remote.permitted or remote.refused:
                continue
            if (request := remote.folder.stop_request()) is not None:
                self.call("ask", remote.folder.id, "stop", request)
                remote.stop_told = True

    def question(self) -> tuple[dict[str, Any], dict[str, int]]:
        """The arguments with which to ask the agent for news."""
        held = {name: remote.brought.has() for name, remote in self.jobs.items() if not remote.shared}
        return held, dict(self._seen)

    def receive_answer(self, versions: dict[str, int], news: list[JobNews]) -> None:
        """Handle the agent's answer."""
        self._seen |= versions
        for job_news in news:
            if (remote := self.jobs.get(job_news.job)) is not None:
                self._hear(remote, job_news)

    def _hear(self, remote: _Remote, news: JobNews) -> None:
        remote.news, remote.shared = news, news.shared
        if not remote.folder.path.exists():  # deleted: nobody wants it any more
            self._drop(remote)
            return
        if news.begun and not remote.permitted:
            self._answer(remote, news)
        if remote.refused:
            self.finish_ended(remote)
            return
        if not news.shared:
            for piece in news.pieces:
                remote.brought.write_piece(piece)
            if news.paths:
                remote.brought.prune(news.paths)
        state = remote.state
        if news.taken is not None and not news.ended:
            state = replace(state, cpu_s=news.taken.cpu_s, memory_mb=news.taken.memory_mb)
        self._say(remote, state)
        self.finish_ended(remote)

    def _answer(self, remote: _Remote, news: JobNews) -> None:
        """Answer a job's process that asks whether it may begin: yes if the folder names it, or it is the first to
        ask."""
        started = records.parse(Path(news.begun), news.begun.encode(), JobStart)
        handle = started.handle
        if (
            not isinstance(handle, begin_request.RayHandle)
            or handle.agent != self.agent
            or handle.folder != str(remote.folder.path)
        ):
            raise BrokenRecord(Path(news.job), "an agent reported on a job that another agent runs")
        before = remote.folder.started()
        if before is None:
            may_begin = self._may_begin(remote.folder.id, handle)
            if may_begin is None:
                return
            if may_begin:
                self._say(remote, RemoteState(handle, alive=True))
            allowed = may_begin and remote.folder.claim(started)
        else:
            allowed = before.handle == handle
            if allowed:
                self._say(remote, replace(remote.state, handle=handle, alive=True))
        self.call("permit", news.job, allowed)
        remote.permitted, remote.refused = True, not allowed
        if before is None and not allowed:
            remote.parts = handle.parts

    def _may_begin(self, name: str, handle: begin_request.RayHandle) -> bool | None:
        """Whether a process may begin. On several nodes all parts begin or none: None while others have not asked."""
        if any(
            has_failed_to_start(self.spool.folder_of(part))
            for part in ([name] if begin_request.is_part(name) else handle.parts)
        ):
            return False
        if not begin_request.is_part(name):
            return True if self.gathering.asked.issuperset(handle.parts) else None
        self.gathering.asked.add(name)
        run = JobFolder(self.spool.folder_of(begin_request.run_of(name)))
        started = run.started()
        if started is None:
            return None
        joins = name in (part.name for part in begin_request.read_joined_parts(run.path)) and not run.is_ending()
        expected = isinstance(started.handle, begin_request.RayHandle) and name in started.handle.parts
        return (joins or expected) and started.alive()

    def _is_off(self, order: JobOrder) -> bool:
        """Whether the start that this order belongs to has been given up, or the job is over."""
        run = JobFolder(self.spool.folder_of(begin_request.run_of(order.job)))
        started = run.started()
        is_over = started is not None and (run.is_ending() or not started.alive())
        together = [order.job, *order.parts] if begin_request.is_part(order.job) else order.parts
        return is_over or any(has_failed_to_start(self.spool.folder_of(name)) for name in together)

    def finish_ended(self, remote: _Remote) -> None:
        """Record that a job has ended, as soon as all its files are here, and that nothing of it is left on the
        node."""
        news = remote.news
        if remote.refused:
            if news is not None and news.ended:
                self.call("forget", news.job)
                self._refused(remote.folder, remote.parts)
                self._drop(remote)
            return
        if news is None or not news.ended or not (news.complete or news.shared):
            return
        cleared = news.cleared or remote.state.handle is None
        if remote.state.alive or remote.state.handle is None:
            remote.ending_since = remote.ending_since or time.monotonic()
            if not self.recording.is_complete(remote.folder):
                if time.monotonic() - remote.ending_since < RECORD_S:
                    return
                remote.folder.unrecorded.touch()
            remote.brought.finish()
            ended = replace(remote.state, alive=False, code=news.code, problem=news.problem, cleared=cleared)
            self._say(remote, ended)  # in one: who hears of its end need not ask for more
        if cleared:
            self._say(remote, replace(remote.state, alive=False, cleared=True))
            self.call("forget", news.job)
            self._drop(remote)
            if self.recording.is_complete(remote.folder):
                shutil.rmtree(remote.folder.path / names.SPOOL, ignore_errors=True)

    def finish_all_ended(self) -> None:
        for remote in list(self.jobs.values()):
            if remote.news is not None and remote.news.begun and not remote.permitted:
                self._answer(remote, remote.news)
            self.finish_ended(remote)

    def clear_ended(self) -> bool:
        """Clear away what ended jobs have left, when no process watches any more. False while any job runs."""
        for name, remote in self.jobs.items():
            if remote.news is not None and remote.news.ended:
                self.call("ask", name, "clear")
        return not self.jobs

    def lost(self, why: str) -> None:
        """Record that the agent has died, and its jobs with it."""
        for remote in list(self.jobs.values()):
            if remote.state.handle is None:
                self._refused(remote.folder, remote.parts)  # it had not begun: it waits again
            else:
                give_up(remote.folder, remote.state, why)
            self._drop(remote)

    def give_back(self) -> None:
        """Take back jobs that have not started on a node that does not answer, so that they start on another one."""
        for order in self.spool.ordered():
            if order.machine == self.machine:
                record_failed_start(self.spool, order.job, order.parts)
        for remote in self.jobs.values():
            if not remote.permitted and not has_failed_to_start(remote.folder.path):
                self._refused(remote.folder, remote.parts)

    def _put(self, digest: str, path: Path) -> None:
        with path.open("rb") as file:
            offset, size = 0, path.stat().st_size
            while True:
                data = file.read(CHUNK)
                last = offset + len(data) >= size
                self.call("put", digest, offset, data, last)
                offset += len(data)
                if last:
                    return

    def _refused(self, folder: JobFolder, parts: Sequence[str] = ()) -> None:
        record_failed_start(self.spool, folder.id, parts)

    def _say(self, remote: _Remote, state: RemoteState) -> None:
        if state != remote.state:
            write_state(remote.folder.path, state)
            remote.state = state

    def _drop(self, remote: _Remote) -> None:
        self.recording.forget_job(remote.folder)
        self.gathering.asked.discard(remote.folder.id)
        self.jobs.pop(remote.folder.id, None)
        self._seen.pop(remote.folder.id, None)


def record_failed_start(spool: ClusterSpool, name: str, parts: Sequence[str] = ()) -> None:
    """Give up this start of a job or a part; a job's includes its `parts`, none of which has started then."""
    for job in (*parts, name):
        folder = spool.folder_of(job)
        if folder.exists():
            state = state_of(folder)
            if state is None or state.handle is None or (state.code is not None and not begin_request.is_part(job)):
                write_state(folder, RemoteState(code=CLAIMED_ELSEWHERE, cleared=True))
        spool.order_done(job)


def give_up(folder: JobFolder, state: RemoteState, why: str) -> None:
    """Give up a job of which there will be no more news. A complete `result.json` that has arrived counts."""
    IncomingFiles(folder.path).finish()
    write_state(folder.path, replace(state, alive=False, cleared=True, lost=why))
