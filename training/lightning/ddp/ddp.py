"""Lightning's distributed data parallel, with workers that are forked instead of started anew.

A forked worker needs 0.15 s to its first batch; a started one imports everything again, 4 s. Its death is noticed at
once instead of by the others' timeout.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.futures import Future
from torch.nn import Embedding, EmbeddingBag, Module, Parameter
from torch.nn.parallel import DistributedDataParallel
from typing_extensions import override

from scalebook.training.engine import Coder, Spec
from scalebook.training.engine.rules import ArgumentError, Bf16, Codec, CodecName, Fp16, PositiveFloat, make_codec
from scalebook.training.lightning.arguments import read_object
from scalebook.training.lightning.package import DDPStrategy, Trainer, rank_zero_warn
from scalebook.training.lightning.process_group.forked_group import DEADLINE_S, ForkedGroup
from scalebook.training.lightning.process_group.neighbours import gather_values

ARGUMENT: Final = "codec"
LENGTH_BYTES: Final = 8
"""Size of a frame's length, which is exchanged before the frame, bytes."""
_HALVES: Final[dict[type[Codec], torch.dtype]] = {Bf16: torch.bfloat16, Fp16: torch.float16}


class Exchange:
    """Averages each bucket of gradients over the workers, uncompressed and in place."""

    def __init__(self) -> None:
        self.pushed_bytes = self.pulled_bytes = 0  # by this worker, in this process

    def average(self, bucket: GradBucket) -> Future[Tensor]:
        """DDP's communication hook. The result has the same bits as without a hook."""
        gradients = bucket.buffer()
        gradients.mul_(1 / dist.get_world_size())  # as DDP: a division would round otherwise for three workers
        return self.reduced(gradients).then(lambda done: done.value()[0])

    def reduced(self, gradients: Tensor) -> Future[list[Tensor]]:
        """The sum over all workers, in place."""
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
        """The codec's state in this worker, for a checkpoint; empty if it has none."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the `state`, before the first step."""


class HalfExchange(Exchange):
    """Bf16 or fp16 all-reduce; partial sums are rounded too, as in torch's own hooks."""

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
    """All-gather for any other codec: each worker's frame goes to all, and all average the decoded frames in the same
    order.

    A worker keeps its residuals (what its own frames leave out), by parameter, in the order of `parameters`.
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
            raise _sparse(self._codec, "a gradient is")
        of_bucket = zip(bucket.parameters(), bucket.gradients(), strict=True)
        by_place = {self._places[parameter]: gradient for parameter, gradient in of_bucket}
        places = tuple(sorted(by_place))
        gradients = [by_place[place] for place in places]
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
            self._coders[places] = Coder(self._codec, specs, ARGUMENT)
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
        return [padded[:size] for padded, size in zip(frames, sizes, strict=True)]

    def state(self) -> dict[str, Any]:
        residuals = [(list(places), tensor) for places, tensor in self._kept.items()]
        return {"exchanges": self._exchanges, "residuals": residuals}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._exchanges = state["exchanges"]
        self._kept = {tuple(places): tensor.clone() for places, tensor in state["residuals"]}


def make_exchange(codec: Codec, model: Module, on_gpu: bool) -> Exchange:
    """The exchange for this model's gradients. ValueError, with key and remedy, if codec and model do not fit."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not codec.codes:
        return Exchange()
    for name, module in model.named_modules():
        if isinstance(module, Embedding | EmbeddingBag) and module.sparse:
            raise _sparse(codec, f"the gradient of {name or type(module).__name__} is")
    codec.check([tuple(parameter.shape) for parameter in parameters], ARGUMENT)
    if codec.in_halves:  # added up as such
        return HalfExchange(_HALVES[type(codec)])
    if on_gpu:
        raise ArgumentError(
            "contradiction",
            ARGUMENT,
            f"{codec.name} works on a CPU only",
            "Use bf16, fp16 or fp32, or set accelerator: cpu.",
        )
    return FrameExchange(codec, parameters)


def nbytes(gradients: Tensor) -> int:
    """The bytes of a dense tensor, or of the values and indices of a sparse one."""
    if not gradients.is_sparse:
        return gradients.nbytes
    return gradients._indices().nbytes + gradients._values().nbytes


def _sparse(codec: Codec, subject: str) -> ArgumentError:
    why = f"{codec.name} supports only dense gradients, but {subject} sparse"
    return ArgumentError("contradiction", ARGUMENT, why, "Use fp32, or set sparse: false.")


def _done(gradients: Tensor) -> Future[Tensor]:
    future: Future[Tensor] = Future()
    future.set_result(gradients)
    return future


STATE: Final = "scalebook_ddp"
"""Key in a checkpoint for each worker's codec state, by rank."""
ONE_BUCKET_MB: Final = 1 << 20
"""A bucket size so large that all gradients of a type go into one frame."""


class DDP(ForkedGroup, DDPStrategy):
    """Synchronous: each update averages the gradients of all workers, so all wait for the slowest.

    In a config, write `strategy: ddp`. DDP takes the arguments of Lightning's DDPStrategy except `start_method`. See
    `ForkedGroup` for how the workers start and connect.

    Args:
        codec: Compression of gradients. `fp32`: none. `bf16`, `fp16`: half the bytes, by all-reduce. The other codecs
            use all-gather, so each worker receives more bytes if there are more workers. `int8`: a quarter of the
            bytes; `sign`: 1/32; `qsgd`: a few random levels; `topk`, `randomk`: a share of the values; `powersgd`:
            low-rank matrices.
        deadline_s: Seconds that the nodes of a run wait for each other before the run starts.
    """

    def __init__(
        self, codec: CodecName | Codec = "fp32", deadline_s: PositiveFloat = DEADLINE_S, **kwargs: Any
    ) -> None:
        self.codec = make_codec(read_object(codec, CodecName | Codec, ARGUMENT), ARGUMENT)
        if self.codec.codes and kwargs.get("ddp_comm_hook") is not None:
            raise ArgumentError(
                "contradiction",
                ARGUMENT,
                f"{self.codec.name} cannot be combined with a ddp_comm_hook",
                "Use fp32, or remove the hook.",
            )
        if self.codec.codes and not self.codec.in_halves:
            kwargs.setdefault("bucket_cap_mb", ONE_BUCKET_MB)
        super().__init__(deadline_s=deadline_s, start_method="popen", **kwargs)
        self.exchange: Exchange | None = None  # from the set-up of a fit on, in a worker that is not alone

    @override
    def setup_distributed(self) -> None:
        if not self.meet():
            super().setup_distributed()

    @override
    def setup(self, trainer: Trainer) -> None:
        super().setup(trainer)
        self.share_evaluation(trainer)

    @override
    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        """Load a checkpoint; plain values alone by default, since Lightning would run code in a checkpoint from a
        URL."""
        return super().load_checkpoint(checkpoint_path, weights_only=True if weights_only is None else weights_only)

    @override
    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any | None = None) -> None:
        """Save a checkpoint with each worker's codec state; all workers must call it."""
        state = {} if self.exchange is None else self.exchange.state()
        if state:
            states = gather_values(state, range(self.world_size), None, self.root_device)
            checkpoint = {**checkpoint, STATE: {"codec": repr(self.codec), "workers": states}}
        super().save_checkpoint(checkpoint, filepath, storage_options)

    @override
    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Restore each worker's codec state. It is lost if the codec or the number of workers has changed."""
        super().load_optimizer_state_dict(checkpoint)
        saved = checkpoint.get(STATE)
        if saved and self.exchange is not None and self.exchange.state():
            if saved["codec"] == repr(self.codec) and len(saved["workers"]) == self.world_size:
                self.exchange.restore(saved["workers"][self.global_rank])
            else:
                rank_zero_warn(
                    f"ckpt_path: the codec residuals of {len(saved['workers'])} workers ({saved['codec']}) are lost, "
                    f"because this run has {self.world_size} workers with {self.codec!r}."
                )

    @override
    def _register_ddp_hooks(self) -> None:
        assert isinstance(self.model, DistributedDataParallel)
        if self._ddp_comm_hook is not None or self.world_size == 1:
            super()._register_ddp_hooks()
            return
        self.exchange = make_exchange(self.codec, self.model.module, self.root_device.type != "cpu")
        self.model.register_comm_hook(self.exchange, _average)


def _average(exchange: Exchange, bucket: GradBucket) -> Future[Tensor]:
    """Torch reads the annotations of a hook, so a method of ours is called by a function."""
    return exchange.average(bucket)
