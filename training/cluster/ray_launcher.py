"""Starts jobs on nodes of a cluster: leaves orders for the cluster daemon, keeps it running, and reads the folders for
news."""

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, Literal

from scalebook.training.base import Children, Workspace, processes
from scalebook.training.base.files import locks, records
from scalebook.training.cluster.cluster_spool import (
    REMOTE,
    ClusterSpool,
    JobOrder,
    KnownNodes,
    ask,
    has_failed_to_start,
    state_of,
)
from scalebook.training.cluster.ray_core import require_ray
from scalebook.training.jobs import Allocation, Event, JobFolder, Launcher, Lease, ProcessEnded, begin_request, parts_of

DAEMON: Final = "scalebook.training.cluster.cluster_daemon"
KEEP_S: Final = 1.0
EVERY_S: Final = 0.01


class RayLauncher(Launcher):
    """It does not own the cluster daemon, which stays while jobs run, and is found again by the next launcher."""

    def __init__(
        self, workspace: Workspace, children: Children, runner: str | None = None, preload: Sequence[str] | None = None
    ) -> None:
        require_ray("scalebook.toml: cluster.address")
        self.spool = ClusterSpool(workspace).create()
        self._options = [*([] if runner is None else ["--runner", runner])]
        self._options += [] if preload is None else ["--preload", ",".join(preload)]
        self._prepared = False
        self._running: dict[str, JobFolder] = {}
        self._parts: dict[str, list[str]] = {}
        self._kept = -KEEP_S

    @property
    def state(self) -> Literal["none", "loading", "ready"]:
        if not self._prepared:
            return "none"
        return "ready" if self._machines() else "loading"

    def prepare(self, fresh: bool) -> bool:
        self._prepared = True
        self._keep()
        return self.state == "ready"

    def start(self, job: JobFolder, lease: Lease) -> bool:
        if not job.claimed():
            (job.path / REMOTE).unlink(missing_ok=True)
        cluster = self._machines()
        machine = lease.machine or (cluster.ready[0].name if cluster is not None and cluster.ready else "")
        if job.request().grows or any(not lent.idle for lent in lease.others):
            self._order_parts(job, lease)
        else:
            self.spool.order(JobOrder(job.id, machine, lease.cores, lease.gpus, others=lease.others))
        self._running[job.id] = job
        return True

    def events(self, wait_s: float) -> list[Event]:
        deadline = time.monotonic() + wait_s
        if self._prepared or self._running:
            self._keep()
        while True:
            events = self._ended()
            if events or time.monotonic() >= deadline:
                return events
            time.sleep(min(EVERY_S, max(0.0, deadline - time.monotonic())))

    def close(self) -> None:
        """Withdraw orders that have not started. A job that starts all the same claims its folder."""
        self._prepared = False
        for name, job in list(self._running.items()):
            if not job.claimed():
                self.spool.withdraw(name)
                for part in self._parts.get(name, ()):
                    ask(self.spool.folder_of(part), "withdraw")

    def join(self, job: JobFolder, lent: Allocation) -> None:
        """Add a node in the place of a part that has ended, or in the first free place."""
        started = job.started()
        if started is None:
            return
        parts = begin_request.read_joined_parts(job.path)
        ends = started.executor.ended_parts(started.handle)
        taken = {part.node for part in parts_of(job, started) if part.name not in ends}
        node = next(node for node in range(1, job.request().nodes) if node not in taken)
        part = begin_request.RunPart(begin_request.joined_name(job.id, len(parts), node), node, lent, time.time())
        self._make(job, part, job.request().nodes)
        job.write(begin_request.JoinedParts([*parts, part]))
        self.spool.order(JobOrder(part.name, lent.machine, lent.cores, lent.gpus, node, started.machine))

    def _order_parts(self, job: JobFolder, lease: Lease) -> None:
        """Order each node's part, with a folder here for what it writes."""
        lent_ = [lent for lent in lease.others if not lent.idle]
        machines, attempt = [lease.machine, *(lent.machine for lent in lent_)], 0
        while any(
            has_failed_to_start(self.spool.folder_of(part))
            for part in begin_request.part_names(job.id, machines, attempt)
        ):
            attempt += 1
        self._parts[job.id] = names = begin_request.part_names(job.id, machines, attempt)
        request = job.request()
        for node, (name, lent) in enumerate(zip(names, lent_, strict=True), 1):
            self._make(
                job, begin_request.RunPart(name, node, lent, 0.0), request.nodes if request.grows else 1 + len(names)
            )
            self.spool.order(JobOrder(name, lent.machine, lent.cores, lent.gpus, node, lease.machine))
        first = JobOrder(job.id, lease.machine, lease.cores, lease.gpus, 0, lease.machine, names, lease.others)
        self.spool.order(first)

    def _make(self, job: JobFolder, part: begin_request.RunPart, nodes: int) -> None:
        """Create a part's folder."""
        folder = JobFolder(self.spool.folder_of(part.name))
        folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        records.put(folder.config, job.config.read_bytes())
        folder.write(replace(job.request(), id=part.name, part=part.node, nodes=nodes))

    def _ended(self) -> list[Event]:
        events: list[Event] = []
        for name, job in list(self._running.items()):
            state = state_of(job.path)
            if state is None or state.alive or (state.code is None and not state.cleared):
                continue
            del self._running[name]
            self._parts.pop(name, None)
            if state.code is not None:
                events.append(ProcessEnded(name, state.code, state.problem))
        return events

    def _machines(self) -> KnownNodes | None:
        """The nodes by the cluster daemon, if it lives and there are any."""
        cluster = self.spool.machines()
        return cluster if cluster is not None and cluster.ready and cluster.daemon.alive() else None

    def _keep(self) -> None:
        """Keep the cluster daemon running."""
        if time.monotonic() - self._kept < KEEP_S:
            return
        self._kept = time.monotonic()
        self.spool.want()
        handle = locks.opened(self.spool.lock)
        try:
            held = locks.is_held(handle)
        finally:
            os.close(handle)
        if not held:
            self._kept += 4 * KEEP_S
            with self.spool.log.open("ab") as log, suppress(OSError):
                processes.start_detached(log, DAEMON, str(self.spool.workspace.root), *self._options)
