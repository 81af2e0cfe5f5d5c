"""The courier's end of one machine: passes on what is wanted of its jobs, and brings what they write."""

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from scalebook.training.base.files import records
from scalebook.training.base.files.records import BrokenRecord
from scalebook.training.cluster.agent import JobNews
from scalebook.training.cluster.cluster_spool import (
    ClusterSpool,
    JobOrder,
    RemoteState,
    came_to_nothing,
    state_of,
    tell,
)
from scalebook.training.cluster.incoming_files import IncomingFiles
from scalebook.training.cluster.mlflow_relay import MlflowRelay
from scalebook.training.cluster.outgoing_files import parcel
from scalebook.training.cluster.rendezvous import Gathering
from scalebook.training.jobs.begin_request import RayHandle, is_part, joined, run_of
from scalebook.training.jobs.job_folder import JobFolder, JobStart
from scalebook.training.jobs.launcher import CLAIMED_ELSEWHERE
from scalebook.training.tracking import names

SILENT_S: Final = 20.0
"""For an agent to answer; then the machine counts as away, and what has not begun there goes elsewhere."""
CALL_S: Final = 30.0
"""For one to take in a piece of a file."""
LISTEN_S: Final = 1.0
TURN_S: Final = 0.02
RECORD_S: Final = 60.0
"""For the store to take what a job that has ended has told; then the supervisor says how it ended, and no more."""
CHUNK: Final = 2**22

Call = Callable[..., Any]
"""`call(method, *arguments)`: asks the agent, and waits for its answer."""


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
    """Of the first, those that begin with it or not at all."""
    refused: bool = False
    """Its process was told not to begin; as soon as it has left, this start of the job has come to nothing."""


class AgentLink:
    """`call` raises what Ray raises where the machine does not answer; nothing here is lost by it."""

    def __init__(
        self, desk: ClusterSpool, machine: str, agent: str, call: Call, recording: MlflowRelay, gathering: Gathering
    ) -> None:
        self.desk, self.machine, self.agent, self.call, self.recording = desk, machine, agent, call, recording
        self.gathering = gathering
        self.jobs: dict[str, _Remote] = {}
        self._seen: dict[str, int] = {}
        self._there: set[str] = set()
        """Hashes of files that the agent has."""

    def adopt(self, folder: JobFolder, state: RemoteState) -> None:
        """A job that an earlier courier knew."""
        if folder.id not in self.jobs:
            self.jobs[folder.id] = _Remote(folder, IncomingFiles(folder.path), state, permitted=False)
            self.recording.watch(folder)

    def send(self, order: JobOrder) -> None:
        """Have the job started, unless it is known: asked twice, it is started once."""
        folder = JobFolder(self.desk.folder_of(order.job))
        if order.job not in self.jobs:
            if folder.claimed() or not folder.path.exists() or self._is_off(order):
                self._refused(folder, order.parts)
                return
            where = self.gathering.meet(run_of(order.job), order.first) if order.first else None
            if order.first and where is None:
                return  # the order stays until its first machine answers
            packed, paths = parcel(self.desk.workspace, folder, order, where)
            lacking = sorted(set(packed.hashes).difference(self._there, packed.files.values()))
            for digest in self.call("missing", lacking) if lacking else ():
                self._put(digest, paths[digest])
            self._there.update(lacking)
            self.call("start", packed, [paths[digest].read_bytes() for digest in packed.files.values()])
            self.jobs[order.job] = _Remote(folder, IncomingFiles(folder.path), RemoteState(), parts=order.parts)
            self.recording.watch(folder)
        self.desk.order_done(order.job)

    def pass_on(self) -> None:
        """What is asked of jobs: by the desk, and by the file `stop` in a folder."""
        for name, action in self.desk.pending_requests():
            if name in self.jobs:
                if action != "withdraw":
                    self.call("ask", name, action)
                elif not self.jobs[name].permitted:
                    self._refused(self.jobs[name].folder)
                self.desk.passed_on(name, action)
        for remote in self.jobs.values():
            if not remote.stop_told and remote.permitted and not remote.refused and remote.folder.stop_file.exists():
                self.call("ask", remote.folder.id, "stop", remote.folder.told_to_stop())
                remote.stop_told = True

    def question(self) -> tuple[dict[str, Any], dict[str, int]]:
        """What the agent is to be asked for news with."""
        held = {name: remote.brought.has() for name, remote in self.jobs.items() if not remote.shared}
        return held, dict(self._seen)

    def receive_answer(self, versions: dict[str, int], news: list[JobNews]) -> None:
        """What it answered."""
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
        """The process of a job asks whether it may begin: if it is the one that the folder names, or is the first."""
        started = records.parse(Path(news.begun), news.begun.encode(), JobStart)
        handle = started.handle
        if not isinstance(handle, RayHandle) or handle.agent != self.agent or handle.folder != str(remote.folder.path):
            raise BrokenRecord(Path(news.job), "an agent speaks for another one's job")
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

    def _may_begin(self, name: str, handle: RayHandle) -> bool | None:
        """Of a job on several machines all parts or none: None while others have not come so far."""
        if any(came_to_nothing(self.desk.folder_of(part)) for part in ([name] if is_part(name) else handle.parts)):
            return False
        if not is_part(name):
            return True if self.gathering.asked.issuperset(handle.parts) else None
        self.gathering.asked.add(name)
        run = JobFolder(self.desk.folder_of(run_of(name)))
        started = run.started()
        if started is None:
            return None
        joins = name in (part.name for part in joined(run.path)) and not run.is_ending()
        expected = isinstance(started.handle, RayHandle) and name in started.handle.parts
        return (joins or expected) and started.alive()

    def _is_off(self, order: JobOrder) -> bool:
        """Whether the attempt to start the job that this order belongs to has come to nothing, or the job is over."""
        run = JobFolder(self.desk.folder_of(run_of(order.job)))
        started = run.started()
        is_over = started is not None and (run.is_ending() or not started.alive())
        together = [order.job, *order.parts] if is_part(order.job) else order.parts
        return is_over or any(came_to_nothing(self.desk.folder_of(name)) for name in together)

    def finish_ended(self, remote: _Remote) -> None:
        """Say that a job has ended as soon as all of it is here, and that nothing of it is left there."""
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
        """Nobody watches any more: clear away what jobs that have ended have left. False while any runs."""
        for name, remote in self.jobs.items():
            if remote.news is not None and remote.news.ended:
                self.call("ask", name, "clear")
        return not self.jobs

    def lost(self, why: str) -> None:
        """The agent has died, and its jobs with it."""
        for remote in list(self.jobs.values()):
            if remote.state.handle is None:
                self._refused(remote.folder, remote.parts)  # it had not begun: it waits again
            else:
                give_up(remote.folder, remote.state, why)
            self._drop(remote)

    def give_back(self) -> None:
        """The machine does not answer: what has not begun there is to begin elsewhere."""
        for order in self.desk.ordered():
            if order.machine == self.machine:
                comes_to_nothing(self.desk, order.job, order.parts)
        for remote in self.jobs.values():
            if not remote.permitted and not came_to_nothing(remote.folder.path):
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
        comes_to_nothing(self.desk, folder.id, parts)

    def _say(self, remote: _Remote, state: RemoteState) -> None:
        if state != remote.state:
            tell(remote.folder.path, state)
            remote.state = state

    def _drop(self, remote: _Remote) -> None:
        self.recording.forget_job(remote.folder)
        self.gathering.asked.discard(remote.folder.id)
        self.jobs.pop(remote.folder.id, None)
        self._seen.pop(remote.folder.id, None)


def comes_to_nothing(desk: ClusterSpool, name: str, parts: Sequence[str] = ()) -> None:
    """This start of a job, or of a part; with a job's its `parts`, of which none has begun then."""
    for job in (*parts, name):
        folder = desk.folder_of(job)
        if folder.exists():
            state = state_of(folder)
            if state is None or state.handle is None or (state.code is not None and not is_part(job)):
                tell(folder, RemoteState(code=CLAIMED_ELSEWHERE, cleared=True))
        desk.order_done(job)


def give_up(folder: JobFolder, state: RemoteState, why: str) -> None:
    """Nothing will be heard of the job any more. A whole record of its end that has come counts."""
    IncomingFiles(folder.path).finish()
    tell(folder.path, replace(state, alive=False, cleared=True, lost=why))
