"""How DDP's workers exchange gradients: its communication hooks, which also count the bytes that they hand over.

What is counted is what one worker hands to a collective (pushed), and what it takes out (pulled). Of an all-reduce it
is the buffer, once each way: a ring sends 2 (n - 1) / n of it over each link, which for two workers is the same.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.futures import Future
from torch.nn import Embedding, EmbeddingBag, Module, Parameter

from scalebook.training.ps.codecs.coder import Coder, Spec
from scalebook.training.ps.policy.codecs import Bf16, Fp16, in_halves
from scalebook.training.ps.policy.contradictions import ARGUMENTS
from scalebook.training.ps.policy.frames import Codec

KEY: Final = f"{ARGUMENTS}.codec"
LENGTH_BYTES: Final = 8
"""Of the number that says how long a frame is, which is exchanged before frames are."""
_HALVES: Final[dict[type[Codec], torch.dtype]] = {Bf16: torch.bfloat16, Fp16: torch.float16}


class Exchange:
    """Averages each bucket of gradients over the workers, as they are, in place."""

    def __init__(self) -> None:
        self.pushed_bytes = self.pulled_bytes = 0  # by this worker, in this process

    def average(self, bucket: GradBucket) -> Future[Tensor]:
        """DDP's communication hook. To the bit what DDP does without one."""
        gradients = bucket.buffer()
        gradients.mul_(1 / dist.get_world_size())  # as DDP: a division would round otherwise for three workers
        return self.reduced(gradients).then(lambda done: done.value()[0])

    def reduced(self, gradients: Tensor) -> Future[list[Tensor]]:
        """Their sum over all workers, in place."""
        self.pushed_bytes += nbytes(gradients)
        work: Any = dist.all_reduce(gradients, async_op=True)
        if not gradients.is_sparse:
            self.pulled_bytes += nbytes(gradients)
            return work.get_future()  # type: ignore[no-any-return]  # torch does not annotate it
        return work.get_future().then(self._count_rows)  # type: ignore[no-any-return]

    def _count_rows(self, done: Future[list[Tensor]]) -> list[Tensor]:
        """Rows of all workers come back, and how many is not known before."""
        self.pulled_bytes += nbytes(done.value()[0])
        return done.value()

    def state(self) -> dict[str, Any]:
        """What this worker keeps from one step to the next; for a checkpoint. Empty where nothing is."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Before the first step: go on with this `state`."""


class HalfExchange(Exchange):
    """Bf16 or fp16 in an all-reduce: sums are rounded on their way, too, as in torch's own hooks."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self._dtype = dtype

    def average(self, bucket: GradBucket) -> Future[Tensor]:
        gradients = bucket.buffer()
        if gradients.dtype in (torch.bfloat16, torch.float16):
            return super().average(bucket)
        gradients.mul_(1 / dist.get_world_size())
        future = self.reduced(gradients.to(self._dtype))
        if self._dtype is torch.bfloat16:
            return future.then(lambda done: gradients.copy_(done.value()[0]))
        average = future.wait()[0]
        if bool(torch.isfinite(average.sum(dtype=torch.float32))):
            return _done(gradients.copy_(average))
        return self.reduced(gradients).then(lambda done: done.value()[0])  # beyond fp16, in all workers alike: as it is


class FrameExchange(Exchange):
    """Any other codec: each worker's frame goes to all, and all average what they decode, in the same order.

    A worker keeps what its own frames leave out, by parameter, in the order of `parameters`.
    """

    def __init__(self, codec: Codec, parameters: Sequence[Parameter]) -> None:
        super().__init__()
        self._codec = codec
        self._places: dict[Tensor, int] = {parameter: place for place, parameter in enumerate(parameters)}
        self._coders: dict[tuple[int, ...], Coder] = {}
        self._kept: dict[tuple[int, ...], Tensor] = {}
        self._exchanges = 0

    def average(self, bucket: GradBucket) -> Future[Tensor]:
        buffer = bucket.buffer()
        if buffer.is_sparse:
            raise ValueError(_sparse(self._codec, "a gradient is"))
        of_bucket = zip(bucket.parameters(), bucket.gradients(), strict=True)
        found = {self._places[parameter]: gradient for parameter, gradient in of_bucket}
        places = tuple(sorted(found))
        gradients = [found[place] for place in places]
        coder = self._coder(places, gradients)
        frames = self._gathered(self._encoded(coder, places, gradients))
        buffer.zero_()
        for frame in frames:
            for gradient, decoded in zip(gradients, coder.decode(frame), strict=True):
                if decoded is not None:
                    gradient.add_(decoded)
        return _done(buffer.mul_(1 / len(frames)))

    def _coder(self, places: tuple[int, ...], gradients: Sequence[Tensor]) -> Coder:
        if places not in self._coders:
            specs = [Spec(tuple(gradient.shape), gradient.dtype) for gradient in gradients]
            self._coders[places] = Coder(self._codec, specs, KEY)
        return self._coders[places]

    def _encoded(self, coder: Coder, places: tuple[int, ...], gradients: Sequence[Tensor]) -> Tensor:
        self._exchanges += 1
        before = None
        if coder.kept:
            before = self._kept.setdefault(places, torch.zeros(coder.kept))
        frame, after = coder.encode(gradients, before, self._exchanges << 16 | dist.get_rank())
        if after is not None:
            self._kept[places] = after
        return frame

    def _gathered(self, frame: Tensor) -> list[Tensor]:
        """The frames of all workers. They are of one length but by zstd, or where values are not finite."""
        others = dist.get_world_size() - 1
        lengths = [torch.empty(1, dtype=torch.int64) for _ in range(others + 1)]
        dist.all_gather(lengths, torch.tensor([frame.numel()]))
        sizes = [int(length) for length in lengths]
        longest = max(sizes)
        if frame.numel() < longest:
            frame = torch.cat([frame, frame.new_zeros(longest - frame.numel())])
        frames = list(torch.empty(others + 1, longest, dtype=torch.uint8).unbind())
        dist.all_gather(frames, frame)
        self.pushed_bytes += LENGTH_BYTES + longest
        self.pulled_bytes += others * (LENGTH_BYTES + longest)
        return [whole[:size] for whole, size in zip(frames, sizes, strict=True)]

    def state(self) -> dict[str, Any]:
        kept = [(list(places), tensor) for places, tensor in self._kept.items()]
        return {"exchanges": self._exchanges, "residuals": kept}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._exchanges = state["exchanges"]
        self._kept = {tuple(places): tensor.clone() for places, tensor in state["residuals"]}


def make_exchange(codec: Codec, model: Module, on_gpu: bool) -> Exchange:
    """How the gradients of this model travel. ValueError, naming key and remedy, where it makes no sense."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not codec.codes:
        return Exchange()
    for name, module in model.named_modules():
        if isinstance(module, Embedding | EmbeddingBag) and module.sparse:
            raise ValueError(_sparse(codec, f"that of {name or type(module).__name__} is"))
    codec.check([tuple(parameter.shape) for parameter in parameters], KEY)
    if in_halves(codec):  # added up as such
        return HalfExchange(_HALVES[type(codec)])
    if on_gpu:
        raise ValueError(f"{KEY}: {codec.name} works on a CPU only. Write bf16, fp16 or fp32, or accelerator: cpu.")
    return FrameExchange(codec, parameters)


def nbytes(gradients: Tensor) -> int:
    """Of a dense tensor, or of the rows and places of a sparse one."""
    if not gradients.is_sparse:
        return gradients.nbytes
    return gradients._indices().nbytes + gradients._values().nbytes


def _sparse(codec: Codec, which: str) -> str:
    return f"{KEY}: {codec.name} carries dense gradients alone, and {which} sparse. Write fp32, or sparse: false."


def _done(gradients: Tensor) -> Future[Tensor]:
    future: Future[Tensor] = Future()
    future.set_result(gradients)
    return future
