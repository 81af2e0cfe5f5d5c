"""The worker's end of a run: the whole interface between training code and the parameter server.

A `WorkerEnd` exists from the start of the worker's process; `join`, once the optimizers are made, gives its
`JoinedEnd`, which has an `OptimizerEnd` for each of them. One implementation is over shared memory (`shared_end.py`),
another over a network (`net/remote_end.py`).

Common to all of it:

- Calls come from one thread of the worker, one at a time, and return with nothing under way (except with `overlap`).
- A call that blocks says so. Every wait has the end's deadline: when nothing happens in the run for so long it ends in
  a TimeoutError that names who is missing or what is waited for.
- The death of another worker is no error here: nobody waits for a dead worker (`living`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypedDict

from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from scalebook.training.engine.coordination.measures import (
    Consensus,
    Counts,
    PushMeasures,
    StalenessHistogram,
    Timings,
    WorkerTimes,
)
from scalebook.training.engine.coordination.worker_messages import (
    AFTER,
    IN_BATCH,
    POSITIONS,
    Boundary,
    Phase,
    PlateauStep,
    boundary,
)
from scalebook.training.engine.rules.settings import Settings
from scalebook.training.engine.worker.cursor import TakenBatch
from scalebook.training.engine.worker.shared_state import DataCursor, MessageExchange, RandomStream, Rows, Signals, Work

__all__ = [
    "AFTER",
    "IN_BATCH",
    "POSITIONS",
    "Boundary",
    "DataCursor",
    "Figures",
    "JoinedEnd",
    "MemoryNeed",
    "MessageExchange",
    "OptimizerEnd",
    "Phase",
    "PlateauStep",
    "PushResult",
    "RandomStream",
    "Rows",
    "Signals",
    "SimulationEnd",
    "Snapshot",
    "TakenBatch",
    "Work",
    "WorkerEnd",
    "WrittenError",
    "boundary",
]

Residuals = Sequence[Sequence[Sequence[Tensor]]]
Part = Literal["compute", "data"]
"""The activities that only the training loop can time."""


class PushResult(NamedTuple):
    """The result of a push: the version that the replica has now, whether the gradient was admitted, whether the budget
    of updates is used up by it, and whether anything was sent: not if it is only added to a sum."""

    version: int
    applied: bool
    staleness: int
    is_last: bool
    was_sent: bool = True


class MemoryNeed(NamedTuple):
    """Bytes that a run takes during training, beside activations: for the parameters, and for everything."""

    parameters: int
    shared: int  # versions, optimizer state, gradients that travel
    gradients: int  # of every worker
    snapshot: int  # the copy of the optimizer's state that worker 0 takes when it validates or saves
    replicas: int = 0  # every worker's own parameters, sums and optimizer state, where these are not those of a version
    on_gpu: int = 0  # not of the machine's memory: of the GPU's, what one process copies there and keeps

    @property
    def total(self) -> int:
        """All memory of the node."""
        return self.shared + self.gradients + self.snapshot + self.replicas


class LocalState(TypedDict):
    """State beside a worker's own optimizer: the outer optimizer's, by place of the parameter, and the worker's
    steps."""

    outer: dict[int, Any]
    steps: int


@dataclass(frozen=True)
class Snapshot:
    """The state of the run at one moment: the updates that all of an optimizer's shards have, and its state dict.

    The parameters of that moment are in the worker's replica. Shards that are updated while the snapshot is taken may
    be ahead of others by the pushes under way.
    """

    versions: list[int]
    optimizers: list[dict[str, Any]]
    local: Sequence[LocalState] = ()
    """Of each optimizer, if workers make local steps. `optimizers` are then this worker's."""


class WrittenError(ValueError):
    """Somebody wrote into parameters where the write would be lost; names them, the moment, and the remedy."""


class OptimizerEnd(Protocol):
    """One optimizer's part of a joined worker. Its parameters are the worker's replica of the version pulled last;
    between two calls nothing changes them."""

    @property
    def optimizer(self) -> Optimizer:
        """The worker's own optimizer, which provides its param groups and makes no step."""

    @property
    def version(self) -> int:
        """Updates in the replica; of the oldest shard, if they differ."""

    @property
    def steps(self) -> int:
        """The step count that learning rate schedules use: the version, or the worker's local steps."""

    def push(self, valid: bool = True) -> PushResult:
        """Push the parameters' `.grad` with the present hyper-parameters of the param groups, learning rate included;
        wait until the rule lets this worker begin its next gradient; pull.

        `valid` False: there is no usable gradient (infinite under a loss scaler), and the worker only takes part.
        Blocks as the rule says. `WrittenError` for writes into the parameters, ValueError for added param groups,
        TypeError for an optimizer whose state changes its kind.
        """

    def completed(self, pushed: PushResult) -> PushResult:
        """The final result of a `push`, once the optimizer's step in Lightning is over. The simulator knows it only
        then, since a push may let other workers begin."""

    def groups(self) -> list[dict[str, Any]]:
        """The present param groups as in a state dict, with places instead of parameters."""


class JoinedEnd(Protocol):
    """A worker that has joined. Order of calls: `start`, `begin`, pushes, `finish`, `detach`; rests and snapshots
    between."""

    @property
    def clients(self) -> Sequence[OptimizerEnd]:
        """One for each optimizer, in order."""

    @property
    def versions(self) -> list[int]:
        """The version of each optimizer in this worker's replica."""

    def name_parameters(self, named: Iterable[tuple[str, Tensor]]) -> None:
        """Set the names that errors use; parameters that are not in `named` keep their numbers."""

    def restore(
        self,
        versions: Sequence[int],
        states: Sequence[Mapping[str, Any]],
        residuals: Residuals = (),
        steps: Sequence[int] = (),
    ) -> None:
        """Resume from these versions and optimizer state dicts; by worker 0, before the run's first update.

        With local steps the states are the outer optimizers', and `steps` is what each has made. `residuals`: as
        returned by `residuals`; each worker gets its own again. Those of workers that no longer exist, of other shards
        or of another codec are lost.
        """

    def residuals(self) -> Residuals:
        """Each worker's residuals, by optimizer, worker and shard; empty without error feedback. For a worker that
        trains meanwhile, of some moment between two of its pushes."""

    def start(self) -> None:
        """Once, before `begin`: what has been written into the parameters since `join` becomes part of the first
        version, worker 0's (`WrittenError` if another worker's differs). Blocks until all have come; a late worker gets
        the newest version instead."""

    def begin(self) -> None:
        """Before the first gradient, and after a rest: blocks until the rule lets this worker begin, then pulls."""

    def check_foreign_writes(self, moment: str, thorough: bool = True) -> None:
        """Call before the replica is replaced by another version. Writes into it become part of the newest version if
        this worker is the only one, else raise a `WrittenError` that names the `moment`.

        Without `thorough`, writes through `.data` may be found only later.
        """

    def watch_closely(self) -> None:
        """Others may write into the parameters now, and restore them before the next check; this stays possible at any
        time for who has done so before."""

    def pull(self, moment: str = "between two pulls") -> None:
        """Make the replica the newest version; `moment` as in `check_foreign_writes`."""

    def rest(self) -> None:
        """There is nothing to compute at present: rules do not count on this worker until `begin`. Blocks until its
        last push is applied."""

    def push_rest(self) -> bool:
        """At the end, push what `downpour` has summed and not pushed, or how far the last local steps have moved; False
        if the budget does not allow it."""

    def finish(self) -> None:
        """This worker will not push any more, apart from the rest of a sum. May be called again. Blocks until its last
        push is applied."""

    def wait_for_others(self) -> None:
        """After `finish`: blocks until all living workers have finished and all their pushes are applied."""

    def snapshot(self, renew: bool = True) -> Snapshot:
        """The state at this moment; the replica has its parameters, in private memory until the next push or pull.

        With `renew` False the replica stays as it is, including writes, since nobody trains yet.
        """

    def show_state(self) -> None:
        """Show the run's state in the optimizers, read-only; after `start` or `restore`."""

    def detach(self) -> None:
        """Give every parameter memory of its own again; nothing else here may be called afterwards."""


class Figures(Protocol):
    """What a run has measured; readable at any time, and nothing here blocks."""

    @property
    def settings(self) -> Settings: ...

    def counts(self) -> Counts:
        """Updates of all optimizers, and samples of all workers."""

    def worker_times(self) -> list[WorkerTimes]:
        """Each worker's seconds, and what it achieved."""

    def staleness(self) -> StalenessHistogram:
        """Staleness by worker, in versions, at the first shard of each optimizer."""

    def pushes(self) -> list[PushMeasures]:
        """What became of the pushes, by worker and shard."""

    def consensus(self) -> Consensus | None:
        """How far peers were apart when their mean was taken last; None without peers."""

    def timings(self) -> Timings:
        """Measured durations of gradients and pushes; empty for a virtual run."""


class WorkerEnd(Protocol):
    """One worker of a run, from the start of its process on."""

    @property
    def settings(self) -> Settings: ...

    @property
    def figures(self) -> Figures:
        """Measures of the whole run, for every worker."""

    @property
    def worker(self) -> int:
        """Its number, from 0."""

    @property
    def workers(self) -> int:
        """How many workers the run has, including dead ones."""

    @property
    def cursor(self) -> DataCursor: ...

    @property
    def signals(self) -> Signals: ...

    @property
    def meetings(self) -> MessageExchange: ...

    @property
    def rows(self) -> Rows: ...

    def rendezvous(self, name: str) -> None:
        """Before training: blocks until every living worker has come to as many rendezvous."""

    def join(
        self, optimizers: Sequence[Optimizer], announce: Callable[[MemoryNeed], None] = ..., model: Module | None = None
    ) -> JoinedEnd:
        """Become a worker that trains: called in every worker, with the same model and optimizers; blocks until all
        have come.

        The first parameters are those of worker 0, and from here on the optimizers' parameters are this worker's
        replica. Worker 0 calls `announce` with the memory that the run needs, before it is taken; it may raise.
        `model`: its embeddings with sparse gradients are shared by rows, each read as of the version pulled. ValueError
        for a model that cannot be shared, TypeError for an optimizer that cannot, OSError if memory is too small,
        RuntimeError when worker 0 died before it had created the parameters.
        """

    def living(self) -> list[int]:
        """The workers whose process has not died, including finished ones."""

    def sign_of_life(self) -> None:
        """Restart the deadline of workers that wait for this one."""

    def is_over(self) -> bool:
        """Whether training is over: asked to stop, or the budget of updates is used up."""

    def now(self) -> float:
        """Seconds on the run's clock, real or virtual; only differences mean something."""

    def add_time(self, part: Part, seconds: float) -> None:
        """Add to this worker's own time."""

    def add_samples(self, samples: int) -> None:
        """Add to the samples that this worker has computed on."""

    def note_memory(self, size: int) -> None:
        """Store the most bytes that this process has held so far, or has allocated on its GPU."""


class SimulationEnd(WorkerEnd, Protocol):
    """All workers of a run, simulated by one process (host virtual). To training code they look like one worker that
    computes every gradient. Its optimizers' parameters, the model's buffers and torch's random numbers are those of the
    worker whose turn it is; between two turns they show the newest version."""

    def play(
        self,
        work: Work,
        buffers: Callable[[], Sequence[Tensor]],
        begins: Callable[[int, list[Tensor]], None],
        shows: Callable[[], None],
        streams: Sequence[RandomStream] = (),
    ) -> None:
        """Once, before `join`. `buffers()`: the model's. `begins(worker, buffers)` is called before each worker's next
        gradient begins, with its own buffers, which may be written into; `shows()` before the model becomes another
        worker's. `streams`: random numbers of which each worker has its own; worker 0's are the present ones when
        training begins."""

    @property
    def current_worker(self) -> int:
        """The worker whose turn it is, or was last."""

    def next_gradient(self) -> int | None:
        """Advance virtual time until a worker's gradient is due, and show that worker; None when none will compute any
        more.

        `Deadlock`, a TimeoutError, if all wait for each other.
        """

    def resume(self, seconds: float) -> None:
        """Before training: set the clock of the run that this one resumes."""
