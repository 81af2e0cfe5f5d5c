"""Decides, in the monitor, what follows when a process of a run dies."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from scalebook.training.base import ProcessLost
from scalebook.training.engine import Launch
from scalebook.training.lightning.package import Callback
from scalebook.training.lightning.processes.process_watch import LostProcess, Reaction

SERVER_RESTARTS: Final = 3
"""The most restarts of servers in one run: a server that keeps dying has a cause that a restart does not remove."""

log = logging.getLogger(__name__)


class HearsOfDeaths:
    """A callback that is told, in the monitor, of workers that have died while the others go on."""

    def worker_died(self, lost: LostProcess, samples: int, *, restarted: bool) -> None:
        """`samples`: those that it had trained."""
        raise NotImplementedError


class Deaths:
    """The reaction to deaths in one run.

    Worker 0 has the run's record (loggers, checkpoints, the decision to stop): its death ends the run. Any other worker
    is restarted and joins at the present version while `restarts` are left (of all workers together); after that the
    others go on without it, and take over its share of the data. A server is restarted, and goes on with the state in
    shared memory.
    """

    def __init__(self, launch: Launch, restarts: int) -> None:
        self._launch = launch
        self._restarts, self._server_restarts = restarts, SERVER_RESTARTS
        self.hearers: Sequence[HearsOfDeaths] = ()

    def react(self, lost: LostProcess) -> Reaction:
        """Decide on a death. A worker that is not restarted is marked dead in shared memory, so that no process waits
        for it."""
        if lost.role == "server":
            return self._server(lost)
        if lost.number == 0:
            return Reaction.END
        if self._restarts == 0:
            return self.give_up(lost)
        self._restarts -= 1
        log.warning("worker %d died: %s. Restarting it.", lost.number, lost.cause)
        self._tell(lost, restarted=True)
        self._launch.rejoin(lost.number)
        return Reaction.RESTART

    def give_up(self, lost: LostProcess) -> Reaction:
        """Let the others go on without this worker."""
        self._launch.mark_dead(lost.number)
        living = len(self._launch.living())
        others = f"{living} worker{'s' * (living != 1)}"
        log.warning("worker %d died: %s. Training continues with %s.", lost.number, lost.cause, others)
        self._tell(lost, restarted=False)
        return Reaction.GO_ON

    def _tell(self, lost: LostProcess, *, restarted: bool) -> None:
        samples = self._launch.figures.worker_times()[lost.number].samples
        for hearer in self.hearers:
            hearer.worker_died(lost, samples, restarted=restarted)

    def _server(self, lost: LostProcess) -> Reaction:
        if self._server_restarts == 0:
            return Reaction.END
        self._server_restarts -= 1
        log.warning("server %d died: %s. Restarting it.", lost.number, lost.cause)
        return Reaction.RESTART


def resume_hint(error: ProcessLost, noted: Path | None, callbacks: list[Callback]) -> ProcessLost:
    """`error` with the newest checkpoint in its message: the one `noted` by the strategy, or one that a callback has
    written."""
    paths = [getattr(callback, "path", None) for callback in callbacks]
    checkpoints = [path for path in (noted, *paths) if isinstance(path, Path) and path.is_file()]
    if not checkpoints:
        return error
    newest = max(checkpoints, key=lambda path: path.stat().st_mtime)
    return type(error)(error.number, f"{error.cause}. Resume from {newest}")
