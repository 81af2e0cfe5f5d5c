"""Collectives (reduce, all_gather, broadcast, barrier) for workers that otherwise do not wait for each other."""

import io
from collections.abc import Callable, Sequence
from pathlib import Path, PosixPath
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from scalebook.training.engine.worker import worker_end
from scalebook.training.lightning.async_ps.collective_order import CollectiveOrder, Stage, number_of_metric
from scalebook.training.lightning.package import Trainer

LISTENER: Final = -1
"""The number of a process that is not a worker and only listens to the workers before training."""
OPERATIONS: Final = ("sum", "mean", "avg", "max", "min", "product")


class _Message(NamedTuple):
    call: str
    value: Any
    roll: list[int]


class Collectives:
    """One process's access to the run's collectives; a server takes part only before training, and sends nothing.

    The result is over the roll (the members), and the same for each of them: before training, and at the start and end
    of an epoch, all workers that train; inside a batch, all that still have batches. `meanwhile` is called while it
    waits.
    """

    def __init__(
        self,
        meetings: worker_end.MessageExchange,
        places: CollectiveOrder,
        worker: int,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        self._meetings, self.places, self.worker, self.meanwhile = meetings, places, worker, meanwhile
        self.has_waited = False
        """Whether it has met others between two batches since somebody has set this."""

    def barrier(self, name: str | None) -> None:
        """Return when all others have come too."""
        self._exchange(f"barrier {name!r}", None)

    def broadcast(self, value: Any, source: int) -> Any:
        """Worker `source`'s value; if it no longer takes part, that of the first worker on the roll."""
        call = f"broadcast from {source}"
        try:
            _seal(_Message(call, value, []))
        except _Unsendable as error:
            if source == self.worker:
                raise TypeError(
                    f"broadcast: {error}. Send tensors, numbers, text or paths, or lists, tuples and dicts of these."
                ) from None
            value = None
        values = self._exchange(call, value)
        chosen = values[source] if source in values else values[min(values)]
        return value if source == self.worker else chosen

    def reduce(self, tensor: Tensor, operation: str) -> Tensor:
        """Reduce over the roll. A mean of integers is a floating point number."""
        parts = self.tensors_of_roll(f"reduce {operation}", tensor)
        stacked = torch.stack(list(parts.values()))
        if operation in ("mean", "avg"):
            mean = stacked.to(torch.get_default_dtype()) if not stacked.is_floating_point() else stacked
            return mean.mean(0)
        by_name: dict[str, Callable[..., Tensor]] = {
            "sum": torch.sum, "max": torch.amax, "min": torch.amin, "product": torch.prod,
        }  # fmt: skip
        return by_name[operation](stacked, dim=0).to(tensor.dtype)

    def mean(self, call: str, tensors: Sequence[Tensor | None]) -> list[Tensor | None]:
        """The means over the roll, place by place, on the CPU; where a worker has None it counts as 0."""
        values = self._exchange(call, [None if tensor is None else tensor.cpu().clone() for tensor in tensors])
        return [
            _mean([one for one in place if one is not None], len(values))
            for place in zip(*values.values(), strict=True)
        ]

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """Every worker's tensor, of any shape, in the order of the workers; this worker's own keeps its graph."""
        values = self._exchange("gather", tensor.detach())
        return [tensor if w == self.worker else value.to(tensor.device) for w, value in values.items()]

    def all_gather(self, tensor: Tensor, sync_grads: bool) -> Tensor:
        """All tensors as [workers on the roll, *tensor.shape]. With `sync_grads` gradients flow into the others'
        graphs, as in DDP: all of them must call `backward`."""
        if sync_grads and torch.is_grad_enabled() and self.worker != LISTENER:
            gathered: Tensor = _AllGather.apply(tensor, self)  # type: ignore[no-untyped-call]
            return gathered
        return torch.stack(list(self.tensors_of_roll("all_gather", tensor.detach()).values()))

    def decide(self, decision: bool, all_of_them: bool) -> bool:
        """Whether all workers, or any, decide True."""
        decisions = self._exchange(f"decision of {'all' if all_of_them else 'any'}", bool(decision)).values()
        return all(decisions) if all_of_them else any(decisions)

    def sum_up_epoch(self, trainer: Trainer) -> None:
        """Reduce what the epoch's steps have logged over all workers, each metric over those that have logged it.

        Every worker calls it after its last batch, before any hook, so that hooks find the metrics computed.
        """
        assert trainer._results is not None
        for name, metric in sorted(
            trainer._results.valid_items(), key=lambda item: (number_of_metric(item[0]), item[0])
        ):
            is_of_all = metric.meta.sync.should if metric.is_tensor else True
            if is_of_all and metric.meta.on_epoch and metric._computed is None:
                with self.places.at_metric(name):
                    metric.compute()
        self._meetings.pass_by(self.places.past_metrics())

    def messages(self, call: str, value: Any, roll: list[int]) -> dict[int, _Message]:
        """Worker -> its value, and the roll that it knows."""
        return self._meet(_Message(call, value, roll))

    def tensors_of_roll(self, call: str, tensor: Tensor) -> dict[int, Tensor]:
        """Worker -> tensor; all must have the same shape."""
        values = self._exchange(f"{call} of shape {list(tensor.shape)}", tensor.detach())
        return {worker: value.to(tensor.device) for worker, value in values.items()}

    def _exchange(self, call: str, value: Any) -> dict[int, Any]:
        return {worker: message.value for worker, message in self._meet(_Message(call, value, [])).items()}

    def _meet(self, message: _Message) -> dict[int, _Message]:
        sealed = _seal(message)
        if self.places.stage is Stage.BEFORE:
            received = self._meetings.gather_before_training(sealed, message.call)
        else:
            place = self.places.next()
            self.has_waited |= place < worker_end.IN_BATCH
            received = self._meetings.all_gather(place, sealed, message.call, self.meanwhile)
        messages = {worker: _open(text) for worker, text in received.items()}
        calls = {worker: other.call for worker, other in messages.items() if other.call != message.call}
        if calls:
            raise RuntimeError(
                f"collectives: worker {self.worker} called {message.call}, but other workers called {calls}. "
                "Call the same collectives in the same order in every worker, on tensors of the same shape."
            )
        return messages


def _mean(present: Sequence[Tensor], count: int) -> Tensor | None:
    """Their sum in this order, divided by `count`."""
    if not present:
        return None
    total = present[0]
    for tensor in present[1:]:
        total = total + tensor
    mean = total / count if count > 1 else total
    return mean.coalesce() if mean.is_sparse else mean


class _Unsendable(Exception):  # becomes a TypeError that names the call
    pass


def _seal(message: _Message) -> bytes:
    buffer = io.BytesIO()
    value = message.value.detach().cpu().clone() if isinstance(message.value, Tensor) else message.value
    try:
        torch.save((message.call, value, message.roll), buffer)
    except Exception as error:
        raise _Unsendable(f"{type(value).__name__} cannot be sent: {error}") from error
    sealed = buffer.getvalue()
    many = value if isinstance(value, list) else [value]
    if not all(isinstance(one, Tensor | None) for one in many):
        _open(sealed)  # what the others could not open is said by whoever sent it
    return sealed


def _open(sealed: bytes) -> _Message:
    with torch.serialization.safe_globals([PosixPath, Path]):
        try:
            return _Message(*torch.load(io.BytesIO(sealed), map_location="cpu", weights_only=True))
        except Exception as error:
            raise _Unsendable(f"its class is not plain data ({str(error).splitlines()[0]})") from error


class _AllGather(Function):
    """Gathers forward; backward each worker gets the sum of the gradients that all have of its part."""

    @staticmethod
    def forward(context: Any, tensor: Tensor, collectives: Collectives) -> Tensor:
        parts = collectives.tensors_of_roll("all_gather", tensor)
        context.collectives, context.roll = collectives, list(parts)
        return torch.stack(list(parts.values()))

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        collectives: Collectives = context.collectives
        own_gradient, worker = gradients[0], collectives.worker
        messages = collectives.messages("backward of all_gather", own_gradient, context.roll)
        total = torch.zeros_like(own_gradient[0])
        for message in messages.values():
            if worker in message.roll:
                total += message.value[message.roll.index(worker)].to(own_gradient.device)
        return total, None


def operation_name(operation: Any) -> str:
    """The name of a reduction, given like in Lightning's strategies as a name or a ReduceOp; None is a sum. ValueError
    for an unsupported one."""
    name = "sum" if operation is None else str(operation).rsplit(".", 1)[-1].lower()
    if name not in OPERATIONS:
        raise ValueError(
            f"reduce: the parameter server does not support the operation {name!r}. Use one of {', '.join(OPERATIONS)}."
        )
    return name
