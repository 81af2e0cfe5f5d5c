"""A run of the engine over machines: shards, worker 0 and proxies on machine 0, every other worker on its own.

What happens is counted in memory that all have; when it is over every push is held against the trace.
"""

import contextlib
import faulthandler
import os
import signal
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple

import psutil
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import Optimizer

from scalebook.training.engine.launch import Launch, anonymous_file
from scalebook.training.engine.net.acceptor import WorkerGone
from scalebook.training.engine.net.channel import ChannelLost, ProxyAddress
from scalebook.training.engine.net.handshake import KEY_BYTES, Refused, Secret, ServerTls, serving
from scalebook.training.engine.net.push_stream import has_push_stream
from scalebook.training.engine.net.remote_end import RemoteEnd
from scalebook.training.engine.net.wire import listening
from scalebook.training.engine.rules.settings import Settings
from scalebook.training.engine.worker.joined_worker import Joined
from scalebook.training.lightning.processes.process_watch import LostProcess, Reaction
from scalebook.training.lightning.processes.run_workers import run_workers
from tests.cluster.joins import Joins, Numbers
from tests.cluster.namespaces import Machines
from tests.cluster.wide import Wide, WideTables, fetch
from tests.training.engine.accounts import Account, settle
from tests.training.engine.accounts import Final as FinalState
from tests.training.engine.trained import Trained
from tests.training.lightning.async_ps.machines import Machine

RUN: Final = "a run"
DEADLINE_S: Final = 20.0
"""Of every wait in the engine: who meets it has hung."""
PACE_S: Final = 0.004
"""A worker computes for so long."""
STAND: Final = signal.SIGRTMAX - 6
"""Asks a process of the run where it stands; the engine has another such signal, and a file for each process."""


class Away(NamedTuple):
    """How a worker on another machine ended: with what it had last, or without, told why."""

    final: FinalState | None
    why: str = ""


class FarRun:
    """Started at once; `end` it. `comes_back`: worker n has a new life when it was lost, `again(n)` on its machine; if
    `elastic` nobody waits for it until then. `absent`: workers that come by `again` alone. `tables`: the model has
    sparse ones."""

    def __init__(
        self,
        machines: Machines,
        folder: Path,
        settings: Settings,
        comes_back: bool = False,
        tls: bool = False,
        reach: Callable[[int, int], tuple[str, int]] | None = None,
        elastic: bool = False,
        absent: Collection[int] = (),
        tables: bool = False,
    ) -> None:
        workers = machines.count
        self._machines, self._folder, self._comes_back = machines, folder, comes_back
        self._elastic, self._absent, self._knocks = elastic, absent, Numbers(workers, "q")
        self._settings = replace(settings, trace=folder / "trace")
        self._trained: Trained = WideTables(workers) if tables else Wide(workers)
        self._secret = Secret(os.urandom(KEY_BYTES))
        self._late = int(has_push_stream(settings) and not tables)  # pushes under way when one returns, of who is away
        self._tls: ServerTls | None = serving() if tls else None
        self._reach = reach or (lambda _worker, port: (machines.addresses[0], port))
        self.pushes, self.ports, self.lives = (Numbers(workers, "q") for _ in range(3))
        self._admitted, self._over = Numbers(workers, "q"), Numbers(1, "q")
        self.pids, self.stand_ins = Numbers(workers, "q"), Numbers(workers, "q")
        self.servers = Numbers(max(1, settings.shards), "q")
        self.told_here, self.told_there = Numbers(workers, "d"), Numbers(workers, "d")  # time.monotonic; 0.0 before
        self._stacks = anonymous_file("stacks")
        faulthandler.register(STAND, file=self._stacks, all_threads=True)  # forks inherit it
        self._home = Machine({}, self._be_home, folder / "home")
        self._away: dict[int, list[Machine]] = {}
        for worker in range(1, workers):
            if worker not in absent:
                self.again(worker)

    def again(self, worker: int) -> None:
        """A process on its machine that is this worker; the first, or one that takes the last one's place."""
        self.lives[worker] += 1
        life, answer = self.lives[worker], self._folder / f"away-{worker}-{self.lives[worker]}"
        self._knocks[worker] = self._elastic and (life > 1 or worker in self._absent)
        self._away.setdefault(worker, []).append(Machine({}, lambda: self._be_away(worker), answer))

    # --- machine 0 ---------------------------------------------------------------------------------------------------

    def _be_home(self) -> list[FinalState | None]:
        machines, workers = self._machines, self._machines.count
        machines.enter(0)
        listeners = [listening(machines.addresses[0]) for _ in range(workers)]
        launch = Launch(workers, self._settings)
        posts = [launch.post(n, RUN, one, self._secret, self._tls) for n, one in enumerate(listeners)]
        for n, listener in enumerate(listeners):
            self.ports[n] = listener.getsockname()[1]

        def work(worker: int) -> FinalState | None:
            if worker == 0:
                end = launch.worker(0, DEADLINE_S)
                model, optimizer = self._made()
                joined = end.join([optimizer], model=model)
                assert isinstance(joined, Joined)
                return self._train(0, joined, model)
            self.stand_ins[worker] = os.getpid()
            with contextlib.suppress(WorkerGone):
                model, optimizer = self._made()
                posts[worker].serve([optimizer], DEADLINE_S, DEADLINE_S, model, lost=_end_at_once)
                return None
            _end_at_once("gone")
            return None

        def serve(server: int) -> None:
            self.servers[server] = os.getpid()
            model, optimizer = self._made()
            launch.server(server, DEADLINE_S).serve([optimizer], model)

        def lost(one: LostProcess) -> Reaction:
            if one.role == "server":
                self.told_here[0] = time.monotonic()
                return Reaction.RESTART
            self.told_here[one.number] = time.monotonic()
            if self._comes_back and not self._elastic:
                launch.rejoin(one.number)
                return Reaction.RESTART
            launch.mark_dead(one.number)
            return Reaction.GO_ON

        others = Joins(launch, self._knocks, self._absent)
        try:
            return run_workers(workers, work, servers=launch.servers, serve=serve, lost=lost, others=others)
        finally:
            launch.close()

    # --- every other -------------------------------------------------------------------------------------------------

    def _be_away(self, worker: int) -> Away:
        self._machines.enter(worker)
        signal.signal(signal.SIGTERM, _leave)
        self.pids[worker] = os.getpid()
        wait(lambda: self.ports[worker] > 0)
        reach = ProxyAddress(*self._reach(worker, self.ports[worker]), self._secret, self._tls is not None)
        end = None
        try:
            end = RemoteEnd(reach, RUN, self._settings, worker, self._machines.count, DEADLINE_S)
            model, optimizer = self._made()
            joined = end.join([optimizer], model=model)
            assert isinstance(joined, Joined)
            return Away(self._train(worker, joined, model))
        except (ChannelLost, Refused) as error:
            self.told_there[worker] = time.monotonic()
            return Away(None, f"{type(error).__name__}: {error}")
        except Leaving:
            return Away(None, "left")
        finally:
            if end is not None:
                end.close()

    # --- training ----------------------------------------------------------------------------------------------------

    def _made(self) -> tuple[nn.Module | None, Optimizer]:
        model = self._trained.model()
        return model, self._trained.optimizer(self._trained.parameters(model), 0.0)

    def _train(self, worker: int, joined: Joined, model: nn.Module | None) -> FinalState:
        (client,) = joined.clients
        parameters = [p for group in client.optimizer.param_groups for p in group["params"]]
        joined.start()
        joined.begin()
        late = self._late if worker else 0
        while not self._over[0]:
            time.sleep(PACE_S)
            fetch(model, worker)
            self._trained.put(parameters, worker)
            pushed = client.push()
            self._admitted[worker] += pushed.applied and pushed.was_sent and not late
            self.pushes[worker] += 1
            late = 0
            if pushed.is_last:
                break
        joined.finish()
        if self._late and worker and not late:
            self._admitted[worker] += 1  # the last, which was under way
        joined.wait_for_others()
        kept = self._kept(worker, joined, parameters)
        plans = [shard.plan.parameters for shard in client.host.partition.shards]
        versions = [shard.version for shard in client.host.partition.shards]
        joined.detach()  # after which whole tables are everywhere
        return FinalState(versions, plans, [parameter.detach().clone() for parameter in parameters], kept)

    def _kept(self, worker: int, joined: Joined, parameters: Sequence[Parameter]) -> list[Tensor | None] | None:
        """None where there are tables: what an optimizer keeps of their rows does not travel."""
        if worker and self._trained.model() is not None:
            joined.pull()
            return None
        states = self._trained.states(joined)
        return [states.get(place, {}).get(self._trained.state) for place in range(len(parameters))]

    # --- in the process that has started it --------------------------------------------------------------------------

    def goes_on(self, worker: int, pushes: int = 10, within_s: float = DEADLINE_S) -> float:
        """Seconds until it has made so many pushes more."""
        began, before = time.monotonic(), self.pushes[worker]
        wait(lambda: self.pushes[worker] >= before + pushes, within_s)
        return time.monotonic() - began

    def wake(self, worker: int) -> str:
        """Let a life before the last, which was frozen, go on; what ends it."""
        machine = self._away[worker][-2]
        assert machine.process.pid is not None
        os.kill(machine.process.pid, signal.SIGCONT)
        ended: Away = machine.result()
        assert ended.final is None, "a life that was given up has trained on"
        return ended.why

    def end(self, deaths: Sequence[int] = ()) -> tuple[Account, list[Away]]:
        """Let all come to the end: every push held against the trace, and how those away ended. `deaths`: of workers,
        one for each; a push may lie between the update and its return, and with host `overlap` another be under way."""
        self._over[0] = 1
        finals = [final for final in self._home.result() if final is not None]
        ends = [lives[-1].result() if worker not in deaths or self._comes_back else self._last(lives[-1])
                for worker, lives in self._away.items()]  # fmt: skip
        finals += [end.final for end in ends if end.final is not None]
        more = [deaths.count(worker) * (1 + self._late) for worker in range(self._machines.count)]
        trace = self._settings.trace
        assert trace is not None
        return settle(trace, finals, self._admitted.all(), more, self._trained), ends

    @staticmethod
    def _last(machine: Machine) -> Away:
        machine.process.join(DEADLINE_S)
        assert not machine.process.is_alive(), "a machine hangs"
        return Away(None, "killed") if not machine.answer.exists() else machine.result()

    def where_they_stand(self) -> str:
        """Each process that runs, with the Python frames of its threads."""
        for machine in [self._home, *self._all()]:
            if not machine.process.is_alive():
                continue
            with contextlib.suppress(psutil.NoSuchProcess):  # it ends meanwhile
                root = psutil.Process(machine.process.pid)
                for process in [root, *root.children(recursive=True)]:
                    self._ask(process)
        return os.pread(self._stacks, os.fstat(self._stacks).st_size, 0).decode(errors="replace")

    def _ask(self, process: psutil.Process) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            os.write(self._stacks, f"\nprocess {process.pid} of {process.ppid()}, {process.status()}\n".encode())
            process.send_signal(STAND)
            time.sleep(0.2)  # one after the other: they share the file

    def close(self) -> None:
        """End what still runs."""
        for machine in [self._home, *self._all()]:
            machine.end()
        if self._stacks >= 0:
            faulthandler.unregister(STAND)
            os.close(self._stacks)
            self._stacks = -1

    def _all(self) -> list[Machine]:
        return [one for lives in self._away.values() for one in lives]


class Leaving(BaseException):  # no error: wherever it is, it leaves
    """Raised in a worker that is told to."""


def _leave(_number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Leaving


def _end_at_once(_why: str) -> None:
    """Of a proxy: it may stand in a wait."""
    os._exit(3)


def wait(until: Callable[[], bool], within_s: float = DEADLINE_S) -> None:
    """AssertionError when it does not happen in time."""
    end = time.monotonic() + within_s
    while not until():
        assert time.monotonic() < end, f"nothing for {within_s:g} s"
        time.sleep(0.002)


def kill(process: int, how: signal.Signals = signal.SIGKILL) -> None:
    os.kill(process, how)
