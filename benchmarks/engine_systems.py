"""The rows of `benchmarks.engine`, and the ratios between them that are printed."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from benchmarks.engine_baselines import ddp, hogwild, rpc_server, unconnected
from benchmarks.engine_lightning import through_lightning
from benchmarks.engine_lightning import unconnected as unconnected_trainers
from benchmarks.engine_models import PERCEPTRON, TASKS, Task
from benchmarks.engine_ps import parameter_server
from benchmarks.engine_table import Goal
from benchmarks.engine_task import Measured, OptimizerName
from scalebook.training.engine import Settings
from scalebook.training.engine.rules.exchanges import AdPsgd, DPsgd, PeerExchange
from scalebook.training.engine.rules.peering import Peering
from scalebook.training.engine.rules.topologies import Ring
from scalebook.training.engine.rules.update_rules import Bounded, Sync

BRIEF_S: Final = 0.1


class System(NamedTuple):
    """One row: `measure(seconds)` starts and ends everything it needs. Only `default` rows are measured without
    `--all`."""

    name: str
    measure: Callable[[float], Measured]
    default: bool = True


def engine(
    name: str = "", workers: int = 2, optimizer: OptimizerName = "SGD", default: bool = False, **settings: Any
) -> System:
    """A row of the parameter server; by default async, inline, one shard, counters only."""
    title = f"AsyncPS x {workers}" + (f", {name}" if name else "")
    chosen = Settings(**settings)
    return System(title, lambda seconds: parameter_server(seconds, workers, chosen, optimizer), default)


def peers(name: str, exchange: PeerExchange) -> System:
    """A row of two peers, which have no server."""
    chosen = Settings(local=Peering(exchange, Ring()))
    return System(f"Peers x 2, {name}", lambda seconds: parameter_server(seconds, 2, chosen))


def traced(seconds: float) -> Measured:
    """With a trace, written to a folder that is removed afterwards."""
    with TemporaryDirectory() as folder:
        return parameter_server(seconds, 2, Settings(trace=Path(folder)))


BASELINES: Final = [
    System("one process", lambda seconds: unconnected(seconds, 1)),
    System("two unconnected processes", lambda seconds: unconnected(seconds, 2)),
    System("DDP gloo x 2", lambda seconds: ddp(seconds, 2)),
    System("hogwild x 2", lambda seconds: hogwild(seconds, 2), default=False),
    System("torch RPC server x 2", lambda seconds: rpc_server(seconds, 2)),
]
ENGINE: Final = [
    engine(workers=1, default=True),
    engine(default=True),
    engine("bounded 4", rule=Bounded(4)),
    engine("sync", rule=Sync(), default=True),
    engine("4 shards", shards=4),
    engine("process", host="process"),
    engine("process, overlap", host="overlap"),
    engine("drift", drift=True),
    System("AsyncPS x 2, trace", traced, default=False),
    peers("ad_psgd", AdPsgd()),
    peers("d_psgd", DPsgd()),
]
OPTIMIZERS: Final = [
    System("one process, Adam", partial(unconnected, processes=1, optimizer="Adam"), default=False),
    engine("Adam", workers=1, optimizer="Adam"),
    engine("Adam", optimizer="Adam"),
]


def after_others(seconds: float) -> Measured:
    """AsyncPS x 2 in a process that has measured the other default rows before, briefly."""
    for system in [*BASELINES, *ENGINE, *LIGHTNING]:
        if system.default:
            system.measure(BRIEF_S)
    return through_lightning(PERCEPTRON, "async_ps", 2, seconds)


def trainers(name: str, task: Task) -> list[System]:
    """The rows of a model: in scripts, then as runs of `scalebook fit`."""
    ways = (("one process", "auto", 1), ("DDP x 2", "ddp", 2), ("AsyncPS x 2", "async_ps", 2))
    scripts = [
        System(f"{name}: {way}", partial(through_lightning, task, how, count), False) for way, how, count in ways
    ]
    scripts.insert(1, System(f"{name}: two unconnected processes", partial(unconnected_trainers, task, 2), False))
    return scripts + [
        System(f"{name}: run, {way}", partial(through_lightning, task, how, count, recorded=True), False)
        for way, how, count in ways
    ]


LIGHTNING: Final = [
    System("one process, Lightning", partial(through_lightning, PERCEPTRON, "auto", 1)),
    System("two unconnected processes, Lightning", partial(unconnected_trainers, PERCEPTRON, 2)),
    System("DDP x 2, Lightning", partial(through_lightning, PERCEPTRON, "ddp", 2)),
    System("AsyncPS x 1, Lightning", partial(through_lightning, PERCEPTRON, "async_ps", 1), default=False),
    System("AsyncPS x 2, Lightning", partial(through_lightning, PERCEPTRON, "async_ps", 2)),
]
MODELS: Final = [system for name, task in TASKS.items() for system in trainers(name, task)]
AFTER_OTHERS: Final = System("AsyncPS x 2, Lightning, after others", after_others)
SYSTEMS: Final = [*BASELINES, *ENGINE, *OPTIMIZERS, *LIGHTNING, AFTER_OTHERS, *MODELS]


def goals_of(name: str) -> list[Goal]:
    """The ratios of a model."""
    limit, one = f"{name}: two unconnected processes", f"{name}: run, one process"
    return [
        Goal(f"{name}: AsyncPS x 2", limit, "gradients_per_s", ">= 0.95"),
        Goal(f"{name}: AsyncPS x 2", limit, "cpu_ms"),
        Goal(f"{name}: DDP x 2", limit, "gradients_per_s"),
        Goal(f"{name}: run, AsyncPS x 2", one, "gradients_per_s", ">= 1.8" if name == "tiny" else ">= 1.9"),
        Goal(f"{name}: run, DDP x 2", one, "gradients_per_s"),
    ]


GOALS: Final = [
    Goal("AsyncPS x 2", "one process", "updates_per_s", ">= 1.85"),
    Goal("two unconnected processes", "one process", "updates_per_s", "the machine's limit"),
    Goal("AsyncPS x 2", "one process", "cpu_ms", "<= 1.10"),
    Goal("two unconnected processes", "one process", "cpu_ms", "the machine's limit"),
    Goal("AsyncPS x 2", "two unconnected processes", "updates_per_s", ">= 0.97"),
    Goal("AsyncPS x 2", "two unconnected processes", "cpu_ms"),
    Goal("AsyncPS x 1", "one process", "updates_per_s", ">= 0.97"),
    Goal("Peers x 2, ad_psgd", "two unconnected processes", "updates_per_s", ">= 0.92"),
    Goal("Peers x 2, ad_psgd", "two unconnected processes", "cpu_ms"),
    Goal("Peers x 2, ad_psgd", "AsyncPS x 2", "updates_per_s"),
    Goal("Peers x 2, d_psgd", "DDP gloo x 2", "updates_per_s"),
    Goal("AsyncPS x 2", "hogwild x 2", "updates_per_s"),
    Goal("hogwild x 2", "two unconnected processes", "updates_per_s"),
    Goal("AsyncPS x 2", "DDP gloo x 2", "updates_per_s"),
    Goal("AsyncPS x 2, sync", "DDP gloo x 2", "updates_per_s"),
    Goal("AsyncPS x 2", "torch RPC server x 2", "updates_per_s"),
    Goal("AsyncPS x 2, process", "torch RPC server x 2", "updates_per_s"),
    Goal("AsyncPS x 2, process", "AsyncPS x 2", "updates_per_s"),
    Goal("AsyncPS x 2, process, overlap", "AsyncPS x 2, process", "updates_per_s"),
    Goal("AsyncPS x 2, 4 shards", "AsyncPS x 2", "updates_per_s"),
    Goal("AsyncPS x 2, bounded 4", "AsyncPS x 2", "updates_per_s"),
    Goal("AsyncPS x 2, drift", "AsyncPS x 2", "cpu_ms"),
    Goal("AsyncPS x 2, trace", "AsyncPS x 2", "cpu_ms"),
    Goal("AsyncPS x 2, Adam", "one process, Adam", "updates_per_s"),
    Goal("AsyncPS x 1, Lightning", "one process, Lightning", "updates_per_s", ">= 0.91"),
    Goal("AsyncPS x 2, Lightning", "one process, Lightning", "updates_per_s", ">= 1.8"),
    Goal("two unconnected processes, Lightning", "one process, Lightning", "updates_per_s", "the machine's limit"),
    Goal("AsyncPS x 2, Lightning", "one process, Lightning", "cpu_ms", "<= 1.15"),
    Goal("two unconnected processes, Lightning", "one process, Lightning", "cpu_ms", "the machine's limit"),
    Goal("AsyncPS x 2, Lightning", "two unconnected processes, Lightning", "updates_per_s", ">= 0.93"),
    Goal("AsyncPS x 2, Lightning", "two unconnected processes, Lightning", "cpu_ms", "<= 1.10"),
    Goal("AsyncPS x 2, Lightning, after others", "two unconnected processes, Lightning", "updates_per_s", ">= 0.93"),
    Goal("AsyncPS x 2, Lightning, after others", "two unconnected processes, Lightning", "cpu_ms", "<= 1.10"),
    Goal("AsyncPS x 2, Lightning", "DDP x 2, Lightning", "updates_per_s"),
    *(goal for name in TASKS for goal in goals_of(name)),
]


def choose(systems: list[System], only: list[str], everything: bool) -> list[System]:
    """The rows to measure: those named by `only` (a whole name, or part of names), all, or the default ones.

    ValueError when a part of `only` matches no row.
    """
    if not only:
        return [system for system in systems if everything or system.default]
    wanted: set[str] = set()
    for part in only:
        exact = {system.name for system in systems if system.name == part}
        named = exact or {system.name for system in systems if part in system.name}
        if not named:
            raise ValueError(f"--only {part!r}: no row has that in its name. --list prints all names.")
        wanted |= named
    return [system for system in systems if system.name in wanted]
