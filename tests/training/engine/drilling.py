"""One kill drill of the engine, without Lightning: real processes, one of them killed at a random moment.

The workers push gradients of known value through the engine's public interface, traced; one process is killed; then
everything is counted: whether the others went on, every push, the weights, and what is left behind.
"""

import contextlib
import os
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from mmap import mmap
from pathlib import Path
from typing import Final

import psutil
from torch.nn import Parameter

from scalebook.training.engine import Joined, Settings, SharedRun, join, serve
from scalebook.training.engine.memory.region import FINISHED
from tests.training.engine.accounts import Account, settle
from tests.training.engine.accounts import Final as FinalState
from tests.training.engine.forking import LostProcess, Reaction, run_workers
from tests.training.engine.killing import HERE, SIGNAL, Phase, watch_applying
from tests.training.engine.scenes import Kind, Scene, Victim
from tests.training.engine.trained import LocalSteps, Tables, Trained

WORKERS: Final = 3
DEADLINE_S: Final = 10.0  # of every wait in the engine: a drill that meets it has hung
PAUSE_S: Final = 0.0003  # in a slow update: 9 of them
TIMES: Final = {
    Phase.JOINING: 1,
    Phase.COMPUTING: 12,
    Phase.PUSHING: 12,
    Phase.APPLYING: 6,
    Phase.WAITING: 4,
    Phase.ENDING: 1,
}
NOTHING: Final = Account(0, 0, 0)


@dataclass(frozen=True)
class Outcome:
    """What came of a drill. `killed`: False when the run was over before the moment came, and nothing was tried.

    `noticed_s`: from the kill until the monitor asked what to do, the end of the process included; `went_on_s`: from
    there until all the others had pushed once more (0.0: they had finished).
    """

    killed: bool
    hung: bool
    account: Account
    left: Sequence[str] = ()
    noticed_s: float = 0.0
    went_on_s: float = 0.0
    problem: str = ""

    @property
    def is_good(self) -> bool:
        """Whether all is as promised."""
        return not (self.hung or self.problem or self.left or any(self.account))


def _trained(kind: Kind, settings: Settings) -> Trained:
    if kind is Kind.STEPS:
        return LocalSteps(WORKERS, settings)
    return Tables(WORKERS) if kind is Kind.TABLES else Trained(WORKERS)


class Drill:
    """One run with one death. The arrays are shared by its processes; each cell has one writer at a time."""

    def __init__(self, scene: Scene, folder: Path) -> None:
        self.scene, self.folder = scene, folder
        self.rng = random.Random(scene.seed)
        settings = Settings(
            rule=scene.rule, shards=scene.shards, host=scene.host, trace=folder, max_updates=scene.budget,
            damping=scene.damping, warmup_updates=scene.warmup, clip=scene.clip,
            push_codec=scene.codec, local=scene.local,
        )  # fmt: skip
        self.run = SharedRun(WORKERS, settings)
        self.trained = _trained(scene.kind, settings)
        self.number = self._choose()
        self.nth = self.rng.randint(1, TIMES[scene.phase])
        self.part = self.rng.random()
        slow = {Phase.WAITING: -1.0 if scene.victim is Victim.SERVER else 0.0, Phase.APPLYING: PAUSE_S}
        self.pause_s = slow.get(scene.phase, 0.0)
        self.admitted = memoryview(mmap(-1, 8 * WORKERS)).cast("q")
        self.rests = memoryview(mmap(-1, 8 * WORKERS)).cast("q")  # whether steps were left at the end
        self.starts = memoryview(mmap(-1, 16 * WORKERS)).cast("q")
        self.returned = memoryview(mmap(-1, 8 * WORKERS)).cast("q")  # pushes of a worker that came back
        self.after_s = memoryview(mmap(-1, 8 * WORKERS)).cast("d")  # from the notice to a survivor's next push
        self.times = memoryview(mmap(-1, 16)).cast("d")  # time.monotonic of the kill and of the notice; 0.0 before
        self.losses: list[LostProcess] = []
        self.comes_back = False

    def _choose(self) -> int:
        if self.scene.victim is Victim.SERVER:
            return self.rng.randrange(self.scene.shards)
        return 0 if self.scene.victim is Victim.FIRST else self.rng.randrange(1, WORKERS)

    # --- the processes -------------------------------------------------------------------------------------------

    def work(self, worker: int) -> FinalState:
        """A worker's body."""
        again, pushes, trained = self._started_again(worker), 0, self.trained
        is_victim = self.scene.victim is not Victim.SERVER and worker == self.number and not again
        model = trained.model()
        parameters = trained.parameters(model)
        if is_victim and self.scene.phase is Phase.JOINING:
            self._aim()
        with HERE.during(Phase.JOINING):
            optimizers = [trained.optimizer(parameters, self.pause_s)]
            joined = join(self.run, self.run.member(worker, DEADLINE_S), optimizers, model=model)
            joined.begin()
        self._watch()
        if is_victim and self.scene.phase is not Phase.JOINING:  # not before: joining tries the optimizer out
            self._aim()
        while pushes < trained.pushes or (self.scene.budget is not None and not again):
            with HERE.during(Phase.COMPUTING):
                time.sleep(self._compute_s(worker))
                trained.put(parameters, worker)
            trained.stepping(joined, worker)
            with HERE.during(Phase.PUSHING):
                pushed = joined.clients[0].push()
            pushes += 1
            self.admitted[worker] += pushed.applied and pushed.was_sent
            self.returned[worker] += again
            if self.times[1] and not self.after_s[worker]:
                self.after_s[worker] = time.monotonic() - self.times[1]
            if pushed.is_last:
                break
        self.rests[worker] = trained.left(joined, worker)
        with HERE.during(Phase.ENDING):
            joined.finish()
            joined.wait_for_others()
            return self._final(joined, parameters)

    def serve(self, server: int) -> None:
        """A server process's body."""
        again = self._started_again(WORKERS + server)
        if self.scene.victim is Victim.SERVER and server == self.number and not again:
            self._aim()
        self._watch()
        model = self.trained.model()
        optimizers = [self.trained.optimizer(self.trained.parameters(model), self.pause_s)]
        serve(self.run, server, DEADLINE_S, optimizers, model)

    def _watch(self) -> None:
        if not self.trained.tells_applying:
            watch_applying(self.pause_s)

    def _started_again(self, place: int) -> bool:
        self.starts[place] += 1
        return self.starts[place] > 1

    def _aim(self) -> None:
        HERE.aim(self._aimed(), self.nth, self.part, self._tell)

    def _aimed(self) -> Phase:
        """Where a server applies, its update lies in the midst of the worker's push."""
        by_server = self.scene.host == "process" and self.scene.victim is not Victim.SERVER
        return Phase.PUSHING if self.scene.phase is Phase.APPLYING and by_server else self.scene.phase

    def _tell(self, at: float) -> None:
        self.times[0] = at

    def _compute_s(self, worker: int) -> float:
        """Seconds for a gradient; a victim that is to wait is faster than those that it waits for."""
        if self.scene.phase is Phase.WAITING:
            return 0.0002 if worker == self.number else 0.003
        return 0.001 + 0.001 * self.rng.random()

    def _final(self, joined: Joined, parameters: Sequence[Parameter]) -> FinalState:
        states = self.trained.states(joined)
        kept = [states.get(place, {}).get(self.trained.state) for place in range(len(parameters))]
        shards = joined.clients[0].host.partition.shards
        return FinalState(
            [shard.version for shard in shards],
            [shard.plan.parameters for shard in shards],
            [parameter.detach().clone() for parameter in parameters],
            kept,
        )

    # --- the monitor ---------------------------------------------------------------------------------------------

    def lost(self, one: LostProcess) -> Reaction:
        """The policy: servers and whoever is to come back are started again, the others go on without a worker.

        Who had said that it would push no more has nothing to come back for.
        """
        self.times[1] = time.monotonic()
        self.losses.append(one)
        if len(self.losses) > 1:
            return Reaction.END
        if one.role == "server":
            return Reaction.RESTART
        if self.scene.victim is not Victim.RETURNING or self.run.control.counter(one.number, FINISHED):
            self.run.mark_dead(one.number)
            return Reaction.GO_ON
        self.run.rejoin(one.number)
        self.comes_back = True
        return Reaction.RESTART

    def perform(self) -> Outcome:
        """Run it, count, clean up."""
        try:
            finals = run_workers(WORKERS, self.work, servers=self.run.servers, serve=self.serve, lost=self.lost)
        except Exception as error:  # noqa: BLE001  # whatever it is, the drill has failed, and the next one goes on
            hung = isinstance(error, TimeoutError)
            return Outcome(bool(self.losses), hung, NOTHING, problem=f"{type(error).__name__}: {error}")
        finally:
            self.run.close()
        if not self.losses:
            return Outcome(False, False, NOTHING)
        deaths = [int(self.losses[0][:2] == ("worker", worker)) for worker in range(WORKERS)]
        survivors = [one for one in finals if one is not None]
        try:
            more = [died + rest for died, rest in zip(deaths, self.rests.tolist(), strict=True)]
            admitted = self.admitted.tolist()
            account = settle(self.folder, survivors, admitted, more, self.trained, self.scene.codec)
        except AssertionError as error:
            return Outcome(True, False, NOTHING, problem=f"the trace: {error}")
        noticed_s = self.times[1] - self.times[0]
        others = [seconds for worker, seconds in enumerate(self.after_s.tolist()) if not deaths[worker]]
        return Outcome(True, False, account, (), noticed_s, max(others), self._problem(survivors))

    def _problem(self, survivors: list[FinalState]) -> str:
        lost, victim = self.losses[0], self.scene.victim
        expected = ("server" if victim is Victim.SERVER else "worker", self.number)
        if (lost.role, lost.number) != expected or SIGNAL.name not in lost.cause:
            return f"another death: {lost}"
        if self.comes_back and self.scene.budget is None and self.returned[self.number] != self.trained.pushes:
            return f"it came back and pushed {self.returned[self.number]} times"
        reached = max(version for final in survivors for version in final.versions)
        if self.scene.budget is not None and reached != self.scene.budget:
            return f"{reached} updates of {self.scene.budget}"
        return ""


def drill(scene: Scene) -> Outcome:
    """Perform a scene in this process, which is the monitor; look for anything that is left afterwards."""
    before = _present()
    with tempfile.TemporaryDirectory() as folder:
        one = Drill(scene, Path(folder))
        outcome = one.perform()
    return replace(outcome, left=sorted(_present() - before))


def _present() -> set[str]:
    """Child processes; shared memory and processes that this one has descriptors or mappings of."""
    children = {f"process {child.pid}" for child in psutil.Process().children(recursive=True)}
    links = {f"descriptor {number} {link}" for number, link in _links() if "memfd" in link or "pidfd" in link}
    maps = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "memfd" in line}
    return children | links | maps


def _links() -> Iterator[tuple[str, str]]:
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one that lists
            yield number, os.readlink(f"/proc/self/fd/{number}")
