"""A drill: a run of the engine over two machines, and one thing that goes wrong at a random moment."""

import contextlib
import random
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from scalebook.training.engine import HostName
from scalebook.training.engine.rules.settings import Settings
from scalebook.training.engine.rules.update_rules import Async, Bounded, Rule, Softsync, Sync
from tests.cluster.far_run import FarRun, kill, wait
from tests.cluster.namespaces import Machines, Namespaces, Way, namespaces
from tests.training.engine.accounts import Account

RULES: Final[tuple[Rule, ...]] = (Async(), Sync(), Bounded(2), Softsync(2))
TOLD_S: Final = 6.0
"""From the moment on, both sides are to know of a death by then."""
WAIT_S: Final = 30.0
"""Who is not told by then, or does not go on, has hung."""
NOTHING: Final = Account(0, 0, 0)


class Kind(StrEnum):
    WORKER = "a remote worker"
    FROZEN = "a remote worker, frozen, which comes to later"
    MACHINE = "its machine"
    LINK = "the link, both ways"
    ONE_WAY = "the link, one way"
    SHORT = "the link, for 1 to 3 s"
    SLOW = "the link is slow"
    LOSS = "the link loses 5 %"
    STAND_IN = "a stand-in"
    SERVER = "a server process"
    LEAVES = "a machine leaves"
    JOINS = "a machine joins"

    @property
    def is_death(self) -> bool:
        """Of worker 1; otherwise both workers are to go on."""
        return self not in (Kind.SHORT, Kind.SLOW, Kind.LOSS, Kind.SERVER, Kind.JOINS)

    @property
    def is_elastic(self) -> bool:
        """Whether a place may be free, and taken."""
        return self in (Kind.LEAVES, Kind.JOINS)

    @property
    def needs_links(self) -> bool:
        """Of which it must be possible to cut, to shape or to lose something."""
        return self not in (Kind.WORKER, Kind.FROZEN, Kind.STAND_IN, Kind.SERVER, Kind.LEAVES, Kind.JOINS)


class Load(StrEnum):
    """What is trained: dense parameters; sparse tables besides; dense ones, computing while a push is under way."""

    PLAIN = "plain"
    TABLES = "tables"
    OVERLAP = "overlap"


class Scene(NamedTuple):
    """`comes_back`: the worker, on its machine, when it was given up. `tls`: of the channel."""

    kind: Kind
    seed: int
    rule: Rule
    shards: int
    host: HostName
    comes_back: bool
    tls: bool
    load: Load = Load.PLAIN


@dataclass
class Outcome:
    """`here_s`, `there_s`: until the machine of the shards knew of the death, and the worker's. `went_on_s`: from then,
    or from when the link is cut no more, or while it is slow or loses frames, until each that lives has pushed ten
    times more. 0.0 where there was nothing."""

    account: Account = NOTHING
    hung: bool = False
    problem: str = ""
    here_s: float = 0.0
    there_s: float = 0.0
    went_on_s: float = 0.0
    left: list[int] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether all is as promised."""
        told = max(self.here_s, self.there_s) <= TOLD_S
        return told and not (self.hung or self.problem or self.left or any(self.account))


def scene(kind: Kind, seed: int, load: Load | None = None) -> Scene:
    """Rules in turn, then the others; of each twenty, five with tables and five with overlap, if nothing else is said.
    Overlap goes with one rule and with server processes alone."""
    load = load or (Load.PLAIN, Load.TABLES, Load.OVERLAP, Load.PLAIN)[seed // 5 % 4]
    is_lane = load is Load.OVERLAP
    host: HostName = "process" if kind is Kind.SERVER or seed % 3 == 2 or is_lane else "inline"
    back = kind is Kind.FROZEN or (kind.is_death and seed // 4 % 2 == 1)
    rule = RULES[0] if is_lane else RULES[seed % 4]
    return Scene(kind, seed, rule, 1 + 2 * (seed // 2 % 2), host, back, seed % 5 == 4, load)


def drill(one: Scene, loopback: bool = False) -> Outcome:
    """Perform it. `loopback`: where there are no namespaces."""
    outcome, drawn = Outcome(), random.Random(one.seed)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        machines = Machines(2) if loopback else stack.enter_context(namespaces(2, one.kind is Kind.LOSS))
        settings = Settings(rule=one.rule, shards=one.shards, host="overlap" if one.load is Load.OVERLAP else one.host)
        absent = (1,) if one.kind is Kind.JOINS else ()
        run = FarRun(
            machines, Path(folder), settings, one.comes_back, one.tls,
            elastic=one.kind.is_elastic, absent=absent, tables=one.load is Load.TABLES,
        )  # fmt: skip
        stack.callback(run.close)
        try:
            _perform(one, outcome, drawn, machines, run)
        except AssertionError as error:
            pushes = f"pushes {run.pushes.all()}, lives {run.lives.all()}"
            outcome.hung, outcome.problem = True, f"{error}; {pushes}{run.where_they_stand()}"
        except Exception as error:  # noqa: BLE001  # whatever it is, the drill has failed, and the next one goes on
            outcome.problem = f"{type(error).__name__}: {error}"
        run.close()
        if isinstance(machines, Namespaces):
            outcome.left = [process for n in range(2) for process in machines.processes(n)]
    return outcome


def _perform(one: Scene, outcome: Outcome, drawn: random.Random, machines: Machines, run: FarRun) -> None:
    """Do it, see that it is told, mend it, see that all go on, count."""
    run.goes_on(0 if one.kind is Kind.JOINS else 1, drawn.randint(3, 40), WAIT_S)
    time.sleep(drawn.uniform(0, 0.01))
    mend, began = _harm(one.kind, drawn, machines, run), time.monotonic()
    if one.kind.is_death:
        wait(lambda: run.told_here[1] > 0, WAIT_S)
        outcome.here_s = run.told_here[1] - began
        if one.kind not in (Kind.WORKER, Kind.FROZEN, Kind.MACHINE, Kind.LEAVES):  # who is dead is told nothing
            wait(lambda: run.told_there[1] > 0, WAIT_S)
            outcome.there_s = run.told_there[1] - began
    elif one.kind is Kind.SERVER:
        wait(lambda: run.told_here[0] > 0, WAIT_S)
        outcome.here_s = run.told_here[0] - began
    well = time.monotonic()
    mend()
    if one.comes_back or one.kind is Kind.JOINS:
        run.again(1)
    if one.kind is Kind.FROZEN:
        run.goes_on(1, 10, WAIT_S)
        run.wake(1)
    for worker in (0, 1) if one.comes_back or not one.kind.is_death else (0,):
        run.goes_on(worker, 10, WAIT_S)
    outcome.went_on_s = time.monotonic() - well
    outcome.account, ends = run.end(deaths=(1,) if one.kind.is_death else ())
    if any(end.final is None for end in ends) != (one.kind.is_death and not one.comes_back):
        outcome.problem = f"another end: {[end.why for end in ends]}"


def _harm(kind: Kind, drawn: random.Random, machines: Machines, run: FarRun) -> Callable[[], object]:
    """What mends it."""
    if kind in (Kind.WORKER, Kind.STAND_IN, Kind.SERVER):
        kill({Kind.WORKER: run.pids[1], Kind.STAND_IN: run.stand_ins[1]}.get(kind, run.servers[0]))
        return lambda: None
    if kind in (Kind.FROZEN, Kind.LEAVES):
        kill(run.pids[1], signal.SIGSTOP if kind is Kind.FROZEN else signal.SIGTERM)
        return lambda: None
    if kind is Kind.JOINS:
        return lambda: None
    assert isinstance(machines, Namespaces)
    if kind is Kind.LOSS:
        assert machines.relay is not None
        machines.relay.delay(drawn.uniform(0, 0.02))
        machines.relay.lose(0.05)
        return lambda: run.goes_on(1, 10, WAIT_S)
    if kind is Kind.SLOW:
        machines.shape(1, 10 ** drawn.uniform(6.1, 6.8))  # 1.3 to 6 Mb/s, for a push and a pull of 0.3 Mb each
        return lambda: run.goes_on(1, 10, WAIT_S)
    machines.cut(1, drawn.choice([Way.OUT, Way.IN]) if kind is Kind.ONE_WAY else Way.BOTH)
    if kind is Kind.MACHINE:
        kill(run.pids[1])
    if kind is Kind.SHORT:
        time.sleep(drawn.uniform(1, 3))
    return lambda: machines.restore(1)
