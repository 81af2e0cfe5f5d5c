"""What workers of a process group send each other: tensors to a neighbour, in turn, and values that run nothing."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only


@dataclass(frozen=True)
class TensorShape:
    """In place of a tensor in a value: what the receiver must know of it."""

    shape: torch.Size
    dtype: torch.dtype
    is_trained: bool
    """Whether its gradient is sent back."""


def layout_of(value: Any) -> Any:
    """A value (nested tuples, lists and dicts) with a TensorShape in place of each tensor."""
    return tree_map_only(Tensor, lambda each: TensorShape(each.shape, each.dtype, each.requires_grad), value)


def layouts_in(value: Any) -> list[TensorShape]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, TensorShape)]


def tensors_in(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def filled(layout: Any, tensors: Sequence[Tensor]) -> Any:
    """The inverse of `layout_of`."""
    left = deque(tensors)
    return tree_map_only(TensorShape, lambda _: left.popleft(), layout)


class Neighbour:
    """One direction between two neighbours, with a process group of its own, so that no order of operations on both
    directions can make the two wait for each other. Tensors arrive in the order in which they are sent.

    Args:
        most: Of what `send` was given, how much may be under way, and in memory. In a pipeline of K stages, K: `1f1b`
            never has more, and with half of it two stages could wait for each other.

    Attributes:
        layouts: Of values that have been sent or received, by what they follow from.
        sent_bytes: Of tensors, by this worker.
        waited_s: For tensors to arrive.
    """

    def __init__(self, group: Any, neighbour: int, device: torch.device, most: int = 1) -> None:
        self._group, self._neighbour, self._device, self._most = group, neighbour, device, most
        self._under_way: deque[list[tuple[Any, Tensor]]] = deque()
        self._ahead: deque[list[tuple[Any, Tensor]]] = deque()
        self.layouts: dict[Any, Any] = {}
        self.sent_bytes, self.waited_s = 0, 0.0

    def say(self, value: Any) -> None:
        """Send a plain value, before the tensors that follow."""
        for tensor in _packed(value, self._device):
            dist.send(tensor, self._neighbour, self._group)

    def hear(self) -> Any:
        begun = perf_counter()
        size = torch.empty(1, dtype=torch.int64, device=self._device)
        dist.recv(size, self._neighbour, self._group)
        packed = torch.empty(int(size), dtype=torch.uint8, device=self._device)
        dist.recv(packed, self._neighbour, self._group)
        self.waited_s += perf_counter() - begun
        return _unpacked(packed)

    def send(self, tensors: Sequence[Tensor]) -> None:
        """Begin to send; the tensors must not be written until `flush`."""
        self._settle(self._most - 1)
        wholes = [tensor.detach().contiguous() for tensor in tensors]
        self._under_way.append([(dist.isend(whole, self._neighbour, self._group), whole) for whole in wholes])
        self.sent_bytes += sum(whole.nbytes for whole in wholes)

    def expect(self, layouts: Sequence[TensorShape]) -> None:
        """Begin to receive what `receive` will return."""
        buffers = [torch.empty(one.shape, dtype=one.dtype, device=self._device) for one in layouts]
        self._ahead.append([(dist.irecv(buffer, self._neighbour, self._group), buffer) for buffer in buffers])

    def receive(self) -> list[Tensor]:
        """What was expected first, when it is there."""
        begun = perf_counter()
        arrived = self._ahead.popleft()
        for work, _ in arrived:
            work.wait()
        self.waited_s += perf_counter() - begun
        return [buffer for _, buffer in arrived]

    def flush(self) -> None:
        """Wait until all is sent."""
        self._settle(0)

    def _settle(self, most: int) -> None:
        while len(self._under_way) > most:
            for work, _ in self._under_way.popleft():
                work.wait()


def gather_values(value: Any, ranks: Sequence[int], group: Any, device: torch.device) -> list[Any] | None:
    """The values of the workers `ranks`, in the first of them, with tensors on the CPU, one after the other; None in
    the others. All must call it. A value is nested dicts, lists and tuples of tensors and plain values."""
    me, first = dist.get_rank(), ranks[0]
    if me != first:
        link = Neighbour(group, first, device)
        link.say(layout_of(value))
        for tensor in tensors_in(value):
            link.send([tensor.to(device)])
            link.flush()
        return None
    values = [tree_map_only(Tensor, lambda each: each.detach().cpu(), value)]
    for rank in ranks[1:]:
        link = Neighbour(group, rank, device)
        layout = link.hear()
        tensors = []
        for one in layouts_in(layout):
            link.expect([one])
            tensors.append(link.receive()[0].cpu())
        values.append(filled(layout, tensors))
    return values


def told_by(rank: int, value: Any, group: Any, device: torch.device) -> Any:
    """The plain value of worker `rank`, in all workers of the group; its tensors on the CPU."""
    if dist.get_rank() == rank:
        size, packed = _packed(value, device)
    else:
        size, packed = torch.empty(1, dtype=torch.int64, device=device), None
    dist.broadcast(size, rank, group)
    if packed is None:
        packed = torch.empty(int(size), dtype=torch.uint8, device=device)
    dist.broadcast(packed, rank, group)
    return value if dist.get_rank() == rank else _unpacked(packed)


def _packed(value: Any, device: torch.device) -> tuple[Tensor, Tensor]:
    """The size of a value's bytes, and these."""
    file = BytesIO()
    torch.save(value, file, _use_new_zipfile_serialization=False)  # a third of the time for small values
    packed = torch.frombuffer(bytearray(file.getbuffer()), dtype=torch.uint8).to(device)
    return torch.tensor([len(packed)], device=device), packed


def _unpacked(packed: Tensor) -> Any:
    """Nothing in it can run: `torch.load` takes numbers, texts, tensors, and the one class that is named here."""
    with torch.serialization.safe_globals([TensorShape]):
        return torch.load(BytesIO(packed.cpu().numpy().tobytes()), map_location="cpu", weights_only=True)
