"""Measures in one step of some epochs what a worker of a split model holds, and what it sends for each layer.

Begin with `PartMeasures`. Bytes of collectives are read off torch's dispatcher, so that they are those of tensors that
really travelled. The step takes longer for it; all others are as they were.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import _resolve_process_group
from torch.nn import Module, Parameter
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves
from typing_extensions import override

from scalebook.training.lightning.model_parallel.parts import part_of
from scalebook.training.lightning.model_parallel.pipeline import Pipeline
from scalebook.training.lightning.package import LightningModule, Trainer
from scalebook.training.lightning.process_group.evaluation import exchange
from scalebook.training.pricing import part_record, units

FSDP: Final = "FSDP::"
"""What FSDP2 calls its parts in a profile: `FSDP::all_gather (net.0)`."""
BESIDE: Final = "next to the layers"
THE_REST: Final = "what no unit has"


class PartMeasures:
    """One step of one worker, from `begin_step` to `end_step`, around its forward and its backward pass."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._passing: _Passing | None = None
        self._kept: _Kept | None = None
        self._hooks: list[Any] = []
        self.passed: list[part_record.Passed] = []
        self.activations = 0.0
        self.gathered = 0.0
        """Bytes of parameters that are there beside a worker's shares: what stays, and the two largest units."""

    def begin_step(self) -> None:
        self._passing, self._kept = _Passing(), _Kept()
        for name, part in self._module.named_modules():
            self._hooks += self._watch(name, part, self._passing)
        self._kept.hooks.__enter__()
        self._passing.__enter__()  # type: ignore[no-untyped-call]  # torch's

    def end_step(self) -> None:
        """After the backward pass, or where there is none."""
        if self._passing is None or self._kept is None:
            return
        self._passing.__exit__(None, None, None)  # type: ignore[no-untyped-call]  # torch's
        self._kept.hooks.__exit__(None, None, None)
        for hook in self._hooks:
            hook.remove()
        self.passed, self.activations = self._passing.rows(), float(self._kept.most)
        staying = self._passing.units.pop(THE_REST, 0.0)
        self.gathered = staying + sum(sorted(self._passing.units.values(), reverse=True)[:2])
        self._passing = self._kept = None
        self._hooks = []

    def _watch(self, name: str, part: Module, passing: "_Passing") -> Iterator[Any]:
        """A layer's collectives are those from its beginning, or the gradient of its output, to the next layer's."""

        def before(module: Module, args: Any) -> None:
            passing.layer = name or BESIDE

        def after(module: Module, args: Any, output: Any) -> None:
            made = next((leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor) and leaf.requires_grad), None)
            if made is not None and not any(made is leaf for leaf in tree_leaves(args)):
                self._hooks.append(made.register_hook(there))  # type: ignore[no-untyped-call]  # torch's

        def there(gradient: Tensor) -> None:
            passing.layer = name or BESIDE

        yield part.register_forward_pre_hook(before, prepend=True)
        if not any(True for _ in part.children()):
            yield part.register_forward_hook(after)


class _Passing(TorchDispatchMode):
    """Counts bytes of collectives, by their name and the layer that is at work."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's
        self.layer = BESIDE
        self.units: dict[str, float] = {}
        """Bytes of what FSDP2 gathers at a time, by unit."""
        self._gathered: list[str] = []  # names of what FSDP2 does at the moment, the innermost last
        self._calls: Counter[tuple[str, str]] = Counter()
        self._bytes: dict[tuple[str, str], float] = defaultdict(float)
        self._sent: dict[tuple[str, str], float] = defaultdict(float)

    @override
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        space, _, name = str(func).partition(".")
        if space == "profiler":
            self._note_name(name, args)
        elif space in ("c10d", "_c10d_functional"):
            self._note(name.partition(".")[0], args)
        return func(*args, **(kwargs or {}))

    def _note_name(self, name: str, args: Any) -> None:
        if name.startswith("_record_function_enter"):
            self._gathered.append(str(args[0]))
        elif self._gathered:
            self._gathered.pop()

    def _note(self, name: str, args: Any) -> None:
        tensors = [leaf for leaf in tree_leaves(args) if isinstance(leaf, Tensor)]
        if not tensors:
            return
        sizes = [float(tensor.numel() * tensor.element_size()) for tensor in tensors]
        if name in ("all_reduce", "all_reduce_", "allreduce_"):
            members, nbytes = _members(args), sum(sizes)
            self._add("all-reduce", nbytes, 2 * (members - 1) / members * nbytes)
        elif name in ("_allgather_base_", "_reduce_scatter_base_"):
            self._add("all-gather" if "gather" in name else "reduce-scatter", max(sizes), max(sizes) - min(sizes))
        elif name in ("all_gather_into_tensor", "reduce_scatter_tensor"):
            members = _members(args)
            whole = sizes[0] * members if "gather" in name else sizes[0]
            self._add("all-gather" if "gather" in name else "reduce-scatter", whole, whole * (members - 1) / members)
        elif name == "send":
            self._add("send", sum(sizes), sum(sizes))

    def _add(self, collective: str, nbytes: float, sent: float) -> None:
        inside = next((name for name in reversed(self._gathered) if name.startswith(FSDP)), None)
        layer = self.layer if inside is None else inside.partition("(")[2].rstrip(")") or THE_REST
        if inside is not None and collective == "all-gather":
            self.units[layer] = nbytes
        key = collective, layer
        self._calls[key] += 1
        self._bytes[key] += nbytes
        self._sent[key] += sent

    def rows(self) -> list[part_record.Passed]:
        return [
            part_record.Passed(*key, float(calls), self._bytes[key], self._sent[key])
            for key, calls in self._calls.items()
        ]


def _members(args: Any) -> int:
    """Workers of a collective, which has its group's name or the group itself among its arguments."""
    for each in args:
        if isinstance(each, torch.ScriptObject):
            try:
                return int(dist.ProcessGroup.unbox(each).size())
            except (RuntimeError, TypeError):  # an operation (sum, mean), not a group
                continue
    name: Any = [each for each in args if isinstance(each, str)][-1]
    return int(_resolve_process_group(name).size())


class _Kept:
    """Bytes that autograd keeps at a time, each storage once, without parameters."""

    def __init__(self) -> None:
        self.most = 0
        self._held: Counter[int] = Counter()
        self._bytes = 0
        self.hooks = torch.autograd.graph.saved_tensors_hooks(self._keep, lambda packed: packed.tensor)

    def _keep(self, tensor: Tensor) -> "_KeptTensor":
        is_parameter = isinstance(tensor, Parameter) or isinstance(tensor._base, Parameter)
        where, size = (0, 0) if is_parameter else _place(tensor.detach())
        if not self._held[where]:
            self._bytes += size
        self._held[where] += 1
        self.most = max(self.most, self._bytes)
        return _KeptTensor(self, tensor, where, size)

    def free(self, where: int, size: int) -> None:
        self._held[where] -= 1
        if not self._held[where]:
            self._bytes -= size


def _place(tensor: Any) -> tuple[int, int]:
    """Address and bytes of the storage of a worker's values, also within a tensor that waits for a collective."""
    while is_traceable_wrapper_subclass(tensor):
        names, _ = tensor.__tensor_flatten__()
        tensor = getattr(tensor, names[0])
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.nbytes()


class _KeptTensor:
    def __init__(self, keeper: _Kept, tensor: Tensor, where: int, size: int) -> None:
        self._keeper, self.tensor, self._where, self._size = keeper, tensor, where, size

    def __del__(self) -> None:
        self._keeper.free(self._where, self._size)


def worker_part(
    module: Module, optimizers: Sequence[Optimizer], measured: PartMeasures, stage: int | None
) -> part_record.WorkerPart:
    """What this worker holds in a step, and has sent in it."""
    own = [parameter for parameter in module.parameters() if not parameter.is_meta]
    states = [value for each in optimizers for values in each.state.values() for value in values.values()]
    return part_record.WorkerPart(
        _nbytes(own) + measured.gathered,
        _nbytes(parameter for parameter in own if parameter.requires_grad),
        _nbytes(value for value in states if isinstance(value, Tensor) and not value.is_meta),
        measured.activations,
        sum(row.sent for row in measured.passed),
        stage,
    )


def _nbytes(tensors: Any) -> float:
    return float(sum(part_of(tensor).nbytes for tensor in tensors))


def placed_layers(module: Module, stage: int | None) -> list[part_record.PlacedLayer]:
    """The layers of which this worker has parameters, and how large they are as a whole."""
    return [
        part_record.PlacedLayer(
            unit.name,
            float(sum(each.numel() * each.element_size() for each in own)),
            max(1, round(sum(each.numel() for each in own) / max(1, sum(part_of(each).numel() for each in own)))),
            stage,
        )
        for unit in units(module)
        if (own := [each for each in unit.module.parameters() if not each.is_meta])
    ]


class EpochMeasures:
    """A `PartRecord` of all workers from one step of epochs 0, 1, 2, 4, 8 ...: the second one, if they have two.

    `words`: the split. `pipeline`: where it has stages. All workers must call all methods.
    """

    def __init__(self, module: LightningModule, words: str, pipeline: Pipeline | None) -> None:
        self._module, self._words, self._pipeline = module, words, pipeline
        self._step = PartMeasures(module)
        self._is_told = True
        self._ran_s = self._waited_s = 0.0  # of the pipeline, when it was last asked
        self.record: part_record.PartRecord | None = None

    def begin_step(self, trainer: Trainer) -> None:
        """Before the forward pass of a batch."""
        epoch = trainer.current_epoch
        if epoch & (epoch - 1) == 0 and trainer.fit_loop.epoch_loop.batch_idx == min(
            1, trainer.num_training_batches - 1
        ):
            self._step.begin_step()
            self._is_told = False

    def end_step(self) -> None:
        """After a backward pass."""
        self._step.end_step()

    def tell(self, trainer: Trainer, device: torch.device) -> None:
        """After an optimizer's step."""
        if self._is_told:
            return
        self._is_told = True
        pipeline, batches = self._pipeline, trainer.accumulate_grad_batches
        stage = None if pipeline is None else pipeline.stage
        part = worker_part(self._module, trainer.optimizers, self._step, stage)
        ran_s, waited_s = (0.0, 0.0) if pipeline is None else (pipeline.ran_s, pipeline.waited_s)
        brought = {
            "part": asdict(replace(part, sent=batches * part.sent)),
            "layers": [asdict(each) for each in placed_layers(self._module, stage)],
            "passed": [asdict(_times(row, batches)) for row in self._step.passed],
            "ran_s": ran_s - self._ran_s,
            "busy_s": ran_s - self._ran_s - (waited_s - self._waited_s),
        }
        self._ran_s, self._waited_s = ran_s, waited_s
        self.record = self._of_all(exchange(brought, device))

    def _of_all(self, brought: Sequence[Mapping[str, Any]]) -> part_record.PartRecord:
        parts = [part_record.WorkerPart(**each["part"]) for each in brought]
        pipeline = self._pipeline
        if pipeline is not None:
            for first in range(0, len(parts), pipeline.stages):
                own = brought[first : first + pipeline.stages]
                whole_s = max(each["ran_s"] for each in own)
                reasons = part_record.pipeline_reasons(
                    [each["busy_s"] for each in own], whole_s, pipeline.microbatches, pipeline.schedule
                )
                for worker, (filling, uneven, link) in enumerate(reasons, first):
                    parts[worker] = replace(parts[worker], bubble=filling, uneven=uneven, link=link)
        of_stages = brought[: 1 if pipeline is None else pipeline.stages]
        return part_record.PartRecord(
            self._words,
            [part_record.PlacedLayer(**layer) for each in of_stages for layer in each["layers"]],
            parts,
            [part_record.Passed(**row) for each in of_stages for row in each["passed"]],
        )


def _times(row: part_record.Passed, batches: int) -> part_record.Passed:
    return replace(row, calls=batches * row.calls, nbytes=batches * row.nbytes, sent=batches * row.sent)
