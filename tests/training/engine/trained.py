"""What a kill drill trains: gradients of known value, and what makes the same updates once more in one process."""

from collections.abc import Sequence
from mmap import mmap
from typing import Any, ClassVar, Final

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import SGD, Adagrad, Optimizer
from typing_extensions import override

from scalebook.training.engine import Joined, Settings
from scalebook.training.engine.store.optimizer_partition import applied
from tests.training.engine.killing import Stepwise

SHAPES: Final = ((2,), (3, 5), (7,))
"""Of the parameters, for each worker; in one of three shards each when there are three."""
ROWS: Final = 40
SHARED_ROW: Final = 7  # of a table: every worker's gradients have it, twice
MOST_PUSHES: Final = 200


def make_parameters(workers: int) -> list[Parameter]:
    """float64 zeros; the first dimension is the worker, so that the parameters say whose updates they have."""
    return [Parameter(torch.zeros(workers, *shape, dtype=torch.float64)) for shape in SHAPES]


def gradients(worker: int, workers: int) -> list[Tensor]:
    """Ones in the worker's own part, zeros elsewhere."""
    made = [torch.zeros(workers, *shape, dtype=torch.float64) for shape in SHAPES]
    for gradient in made:
        gradient[worker] = 1.0
    return made


class Trained:
    """Dense parameters, by SGD with momentum."""

    pushes: ClassVar[int] = 25
    """Steps of each worker, and as many again of one that comes back."""
    state: ClassVar[str] = "momentum"
    """What the optimizer keeps of each parameter."""
    is_known: ClassVar[bool] = True
    """Whether what a push holds follows from its worker and number."""
    tells_applying: ClassVar[bool] = True
    """Whether the optimizer says itself that an update is made."""
    tolerance: ClassVar[float] = 0.0

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def model(self) -> nn.Module | None:
        """Of which the parameters are, where it has tables."""
        return None

    def parameters(self, model: nn.Module | None = None) -> list[Parameter]:
        """As the run has them first."""
        return make_parameters(self.workers)

    def optimizer(self, parameters: Sequence[Parameter], pause_s: float) -> Optimizer:
        """A worker's."""
        return Stepwise(parameters, pause_s)

    def again(self, parameters: Sequence[Parameter]) -> Optimizer:
        """What makes the updates of a shard's parameters, all of them dense, in one process."""
        return Stepwise(parameters)

    def put(self, parameters: Sequence[Parameter], worker: int) -> None:
        """A gradient into the `grad` of the parameters."""
        for parameter, gradient in zip(parameters, gradients(worker, self.workers), strict=True):
            parameter.grad = gradient

    def stepping(self, joined: Joined, worker: int) -> None:
        """A worker is about to push."""

    def pushed(self, worker: int, seq: int) -> list[Tensor]:
        """What that push holds, dense, for each parameter."""
        return gradients(worker, self.workers)

    def left(self, joined: Joined, worker: int) -> bool:
        """Whether a worker that ends has steps that it has not pushed yet."""
        return False

    def states(self, joined: Joined) -> dict[int, Any]:
        """The state of what makes the updates, by place; the replica shows the shards' parameters afterwards."""
        states: dict[int, Any] = joined.snapshot().optimizers[0]["state"]
        return states


class Model(nn.Module):
    """Two tables, and a layer beside them; float64 zeros."""

    def __init__(self, workers: int) -> None:
        super().__init__()
        self.words = nn.Embedding(ROWS, 3, sparse=True, dtype=torch.float64)
        self.bags = nn.EmbeddingBag(ROWS, 2, mode="sum", sparse=True, dtype=torch.float64)
        self.rest = Parameter(torch.zeros(workers, 5, dtype=torch.float64))
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.zero_()


class Tables(Trained):
    """Sparse tables by Adagrad, which keeps something of each row: a row for each worker, one that all have twice."""

    state = "sum"
    tells_applying = False
    tolerance = 1e-9

    @override
    def model(self) -> Model:
        return Model(self.workers)

    @override
    def parameters(self, model: nn.Module | None = None) -> list[Parameter]:
        return list((model or self.model()).parameters())

    @override
    def optimizer(self, parameters: Sequence[Parameter], pause_s: float) -> Optimizer:
        return Adagrad(parameters, lr=1.0)

    @override
    def again(self, parameters: Sequence[Parameter]) -> Optimizer:
        return Adagrad(parameters, lr=1.0)

    @override
    def put(self, parameters: Sequence[Parameter], worker: int) -> None:
        for parameter, gradient in zip(parameters, self._gradients(worker), strict=True):
            parameter.grad = gradient

    @override
    def pushed(self, worker: int, seq: int) -> list[Tensor]:
        return [gradient.to_dense() for gradient in self._gradients(worker)]

    @override
    def states(self, joined: Joined) -> dict[int, Any]:
        states: dict[int, Any] = joined.snapshot(renew=False).optimizers[0]["state"]
        copied = {place: {name: value.clone() for name, value in of.items()} for place, of in states.items()}
        joined.pull()
        return copied

    def _gradients(self, worker: int) -> list[Tensor]:
        made = []
        for parameter in self.model().parameters():
            if len(parameter) == ROWS:
                values = torch.ones(3, parameter.shape[1], dtype=torch.float64)
                rows = torch.tensor([[SHARED_ROW, 10 + worker, SHARED_ROW]])
                made.append(torch.sparse_coo_tensor(rows, values, parameter.shape, check_invariants=False))
            else:
                made.append(torch.zeros_like(parameter.detach()))
                made[-1][worker] = 1.0
        return made


class LocalSteps(Trained):
    """Workers whose steps, of 1 each in their own part, add up until they are pushed. How many a push holds is written
    down by the worker before it sets out: `_held` by worker and push."""

    pushes = 24
    state = "momentum_buffer"
    tells_applying = False
    tolerance = 1e-9

    def __init__(self, workers: int, settings: Settings) -> None:
        super().__init__(workers)
        self._settings = settings
        self._held = memoryview(mmap(-1, 8 * workers * MOST_PUSHES)).cast("q")
        self._since, self._number = 0, 0  # of this process

    @property
    def is_known(self) -> bool:  # type: ignore[override]
        """Not the force between a worker that keeps its parameters and the centre."""
        return not self._settings.local.keeps

    @override
    def optimizer(self, parameters: Sequence[Parameter], pause_s: float) -> Optimizer:
        return SGD(parameters, lr=1.0)

    @override
    def again(self, parameters: Sequence[Parameter]) -> Optimizer:
        return applied(SGD(parameters, lr=1.0), self._settings, self.workers)

    @override
    def stepping(self, joined: Joined, worker: int) -> None:
        number = _next(joined, worker)
        self._since = self._since + 1 if number == self._number else 1
        self._number = number
        self._held[worker * MOST_PUSHES + number] = self._since

    @override
    def left(self, joined: Joined, worker: int) -> bool:
        return _next(joined, worker) == self._number

    @override
    def pushed(self, worker: int, seq: int) -> list[Tensor]:
        held = self._held[worker * MOST_PUSHES + seq]
        return [held * gradient for gradient in gradients(worker, self.workers)]

    @override
    def states(self, joined: Joined) -> dict[int, Any]:
        (local,) = joined.snapshot().local
        return local["outer"]


def _next(joined: Joined, worker: int) -> int:
    """The number of the worker's next push."""
    return int(joined.clients[0].host.partition.counters.begun[worker]) + 1
