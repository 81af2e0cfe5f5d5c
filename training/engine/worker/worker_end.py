"""The worker's end of a run: all that whoever trains in a worker knows of the parameter server.

A `WorkerEnd` is there from the start of the worker's process; `join`, once the optimizers are made, gives its
`JoinedEnd`, which has an `OptimizerEnd` for each of them. The first implementation lies over shared memory
(`shared_end.py`); one over a network offers the same.

Common to all of it:

- Calls come from one thread of the worker, one at a time, and return to it with nothing under way (but for `overlap`).
- What blocks says so. Every wait has the deadline that the end was made with: when nothing happens in the run for so
  long it ends in a TimeoutError which names who is missing or what is waited for.
- The death of another worker is no error here: nobody waits for who is dead (`living`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypedDict

from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from scalebook.training.engine.coordination.measures import (
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
from scalebook.training.engine.worker.cursor import Claim
from scalebook.training.engine.worker.shared_state import DataCursor, MessageExchange, RandomStream, Rows, Signals, Work

__all__ = [
    "AFTER",
    "IN_BATCH",
    "POSITIONS",
    "Boundary",
    "Claim",
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
    "Work",
    "WorkerEnd",
    "WrittenError",
    "boundary",
]

Residuals = Sequence[Sequence[Sequence[Tensor]]]
Part = Literal["compute", "data"]
"""What a worker's time is spent on, as far as only the training loop can tell."""


class PushResult(NamedTuple):
    """What became of a push: the version the replica has now, whether the gradient was let in, whether it was the last
    that the budget of updates allows, and whether anything was sent: not where it is only added to what will be."""

    version: int
    applied: bool
    staleness: int
    is_last: bool
    was_sent: bool = True


class MemoryNeed(NamedTuple):
    """Bytes of memory that a run takes while it trains, beside activations: of the parameters, and of all together."""

    parameters: int
    shared: int  # versions, optimizer state, gradients that travel
    gradients: int  # of every worker
    snapshot: int  # the copy of the optimizer's state that worker 0 takes when it validates or saves
    replicas: int = 0  # every worker's own parameters, sums and optimizer state, where these are not those of a version
    on_gpu: int = 0  # not of the machine's memory: of the GPU's, what one process copies there and keeps

    @property
    def total(self) -> int:
        """All of the machine's."""
        return self.shared + self.gradients + self.snapshot + self.replicas


class LocalState(TypedDict):
    """Beside a worker's own optimizer: the outer one's state, by place of the parameter, and the worker's steps."""

    outer: dict[int, Any]
    steps: int


@dataclass(frozen=True)
class Snapshot:
    """The state of the run at one moment: the updates that each optimizer's shards all have, and its state dict.

    The parameters of that moment are in the worker's replica. Shards that are updated while the snapshot is taken may
    be ahead of others by the pushes under way.
    """

    versions: list[int]
    optimizers: list[dict[str, Any]]
    local: Sequence[LocalState] = ()
    """Of each optimizer, where workers make steps of their own. `optimizers` are then this worker's."""


class WrittenError(ValueError):
    """Somebody wrote into parameters where that would be lost; names them, the moment, and what to do."""


class OptimizerEnd(Protocol):
    """One optimizer's part of a joined worker. Its parameters are the worker's replica of the newest version pulled;
    between two calls nothing changes them."""

    @property
    def optimizer(self) -> Optimizer:
        """The worker's own, which lends its param groups and makes no step."""

    @property
    def version(self) -> int:
        """Updates that the replica has; of the oldest shard, where they differ."""

    @property
    def steps(self) -> int:
        """What learning rates are scheduled by: the version, or where the worker makes steps of its own, these."""

    def push(self, valid: bool = True) -> PushResult:
        """Hand in the parameters' `.grad` with the hyper-parameters that the param groups have now, learning rate
        included; wait until the rule lets this worker begin its next gradient; pull.

        `valid` False: there is no usable gradient (infinite under a loss scaler), and the worker only takes part.
        Blocks as the rule says. `WrittenError` for what was written into the parameters, ValueError for param groups
        that others do not know of, TypeError for an optimizer that changes its kind of state.
        """

    def completed(self, pushed: PushResult) -> PushResult:
        """What `push` has returned, once the optimizer's step is over in whose place it stood. Where one process
        simulates all workers it is known only now, since a push may make others begin."""

    def groups(self) -> list[dict[str, Any]]:
        """The param groups of now as a state dict has them, places instead of parameters."""


class JoinedEnd(Protocol):
    """A worker that has joined: in order `start`, `begin`, pushes, `finish`, `detach`; rests and snapshots between."""

    @property
    def clients(self) -> Sequence[OptimizerEnd]:
        """One for each optimizer, in order."""

    @property
    def versions(self) -> list[int]:
        """Of each optimizer, in this worker's replica."""

    def name_parameters(self, named: Iterable[tuple[str, Tensor]]) -> None:
        """What errors call the parameters; those that are not among `named` by their numbers."""

    def restore(
        self,
        versions: Sequence[int],
        states: Sequence[Mapping[str, Any]],
        residuals: Residuals = (),
        steps: Sequence[int] = (),
    ) -> None:
        """Go on from these versions and optimizer state dicts; by worker 0, before the run's first update.

        Where workers make steps of their own, the states are the outer optimizers', and `steps` what each has made.

        `residuals` as they were told: each worker has its own again. Those of workers that are no more, or of other
        shards or another codec, are lost.
        """

    def residuals(self) -> Residuals:
        """What a codec has left out of each worker's pushes so far, by optimizer, worker and shard; empty without error
        feedback. Of a worker that trains meanwhile, between two of its pushes."""

    def start(self) -> None:
        """Once, before `begin`: what has been written into the parameters since `join` is part of the first version,
        worker 0's (`WrittenError` where another's differs). Blocks until all have come to it; a worker that comes late
        has the newest version instead."""

    def begin(self) -> None:
        """Before the first gradient, and after a rest: blocks until the rule lets this worker begin, then pulls."""

    def check_foreign_writes(self, moment: str, thorough: bool = True) -> None:
        """Before the replica is left for another version: what somebody has written into it becomes part of the newest
        version where this worker is the only one, else it is a `WrittenError`, which says at which `moment`.

        Without `thorough` what was written through `.data` may be found later only.
        """

    def pull(self, moment: str = "between two pulls") -> None:
        """Make the replica the newest version; `moment` as in `check_foreign_writes`."""

    def rest(self) -> None:
        """There is nothing to compute at present: rules no longer count on this worker, until `begin`. Blocks until its
        last push is applied."""

    def push_rest(self) -> bool:
        """At the end, push what `downpour` has summed and not pushed, or what the last steps of its own have led to;
        False: the budget does not allow it."""

    def finish(self) -> None:
        """This worker will not push any more, but for what is left of a sum; as often as one likes. Blocks until its
        last push is applied."""

    def wait_for_others(self) -> None:
        """After `finish`: blocks until all living workers have finished and all that was pushed is applied."""

    def snapshot(self, renew: bool = True) -> Snapshot:
        """The state of this moment; the replica has its parameters, in private memory until the next push or pull.

        Not `renew`: the replica stays as it is, with what has been written into it, since nobody trains yet.
        """

    def show_state(self) -> None:
        """Let the optimizers show the run's state, to be read: from `start` on, or after `restore`."""

    def detach(self) -> None:
        """Give every parameter memory of its own again; nothing else here may be called afterwards."""


class Figures(Protocol):
    """What a run has measured, readable at any time; nothing here blocks."""

    @property
    def settings(self) -> Settings: ...

    def counts(self) -> Counts:
        """Updates of all optimizers, and samples of all workers."""

    def worker_times(self) -> list[WorkerTimes]:
        """Each worker's seconds, and what it achieved."""

    def staleness(self) -> StalenessHistogram:
        """Staleness by worker, in versions, as the first shard of each optimizer has met it."""

    def pushes(self) -> list[PushMeasures]:
        """What became of the pushes, by worker and shard."""

    def timings(self) -> Timings:
        """What gradients and pushes took; nothing of a virtual run."""


class WorkerEnd(Protocol):
    """One worker of a run, from the start of its process on."""

    @property
    def settings(self) -> Settings: ...

    @property
    def figures(self) -> Figures:
        """Of the whole run, every worker's."""

    @property
    def worker(self) -> int:
        """Its number, from 0."""

    @property
    def workers(self) -> int:
        """How many the run has, the dead included."""

    @property
    def cursor(self) -> DataCursor: ...

    @property
    def signals(self) -> Signals: ...

    @property
    def meetings(self) -> MessageExchange: ...

    @property
    def rows(self) -> Rows: ...

    def rendezvous(self, name: str) -> None:
        """Before training: blocks until every living worker has come to as many of them."""

    def join(
        self, optimizers: Sequence[Optimizer], announce: Callable[[MemoryNeed], None] = ..., model: Module | None = None
    ) -> JoinedEnd:
        """Become a worker that trains: by every worker, with the same model and optimizers; blocks until all have come.

        The first parameters are those of worker 0, and from here on the optimizers' parameters are this worker's
        replica. `announce` is told by worker 0 what the run needs, before it takes it, and may raise. `model`: whose
        embeddings with sparse gradients are shared by rows, each read as of the version pulled. ValueError for
        what cannot be shared, TypeError for an optimizer that cannot, OSError where memory is too small, RuntimeError
        when worker 0 died before it had created the parameters.
        """

    def living(self) -> list[int]:
        """The workers whose process has not died, finished ones included."""

    def sign_of_life(self) -> None:
        """For workers that a rule lets wait for this one: their deadline begins anew."""

    def is_over(self) -> bool:
        """Whether nobody is to train any more: asked to stop, or the budget of updates is used up."""

    def now(self) -> float:
        """Seconds on the run's clock, of which only differences mean something: real ones, or a virtual clock's."""

    def add_time(self, part: Part, seconds: float) -> None:
        """Add to this worker's own time."""

    def add_samples(self, samples: int) -> None:
        """Add to the samples that this worker has computed on."""

    def note_memory(self, size: int) -> None:
        """The most bytes that this process has held so far, or has allocated on its GPU."""


class SimulationEnd(WorkerEnd, Protocol):
    """All workers of a run, simulated by one process (host virtual): to whoever trains they look like one worker
    that computes every gradient. Its optimizers' parameters, the model's buffers and torch's random numbers are those
    of the worker whose turn it is; between two turns they show the newest version.
    """

    def play(
        self,
        work: Work,
        buffers: Callable[[], Sequence[Tensor]],
        begins: Callable[[int, list[Tensor]], None],
        shows: Callable[[], None],
        seed: int,
        streams: Sequence[RandomStream] = (),
    ) -> None:
        """Once, before `join`. `buffers()`: the model's. `begins(worker, buffers)` is told before each worker's next
        gradient begins, with its own, which may be written into; `shows()` before the model becomes another worker's.
        `seed`: worker w's random numbers (torch's, and those of `streams`) are those of seed + w, worker 0's those that
        are there when training begins."""

    @property
    def current_worker(self) -> int:
        """Whose turn it is, or was last."""

    def next_gradient(self) -> int | None:
        """Let virtual time pass until a worker's gradient is due, and show it; None when nobody will compute any more.

        `Deadlock`, a TimeoutError, where all wait for each other.
        """

    def resume(self, seconds: float) -> None:
        """Before training: the clock of the run that this one resumes."""
