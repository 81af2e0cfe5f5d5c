"""The tensor plan that a model of `transformers` brings, in torch's styles. That library is not imported.

Such a model has `_tp_plan`: styles by the names of its parts, with `*` for a layer's number. It names what any variant
of the model has, so a name that this one lacks is passed over.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel
from torch.nn import Dropout, Module, Parameter
from typing_extensions import override

from scalebook.training.engine.rules import ArgumentError

ATTRIBUTE: Final = "_tp_plan"
HEAD_SIZES: Final = ("head_dim", "head_size", "attention_head_size")
"""Attributes of an attention layer that say the width of one head."""
REMEDY: Final = "define parallel_plan(self) in the LightningModule, without this layer"


class SummedGradients(ParallelStyle):
    """A style for parts that all workers have whole and each applies to its own attention heads, such as the
    normalisation of queries: the sum of their gradients is one process's."""

    @override
    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        group, plain = device_mesh.get_group(), dict[str, Parameter]()

        def enter(part: Module, _inputs: Any) -> None:
            plain.update(part.named_parameters(recurse=False))
            for name, parameter in plain.items():
                del part._parameters[name]
                setattr(part, name, _Summed.apply(parameter, group))  # type: ignore[no-untyped-call]  # torch's

        def leave(part: Module, _inputs: Any, _output: Any) -> None:
            for name, parameter in plain.items():
                delattr(part, name)
                part._parameters[name] = parameter
            plain.clear()

        module.register_forward_pre_hook(enter)
        module.register_forward_hook(leave, always_call=True)
        return module


class _Summed(Function):
    """A tensor as it is, whose gradient is the sum over a group of workers."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None]:
        (gradient,) = gradients
        total: Tensor = gradient.contiguous().clone()
        dist.all_reduce(total, group=ctx.group)
        return total, None


def _by_columns_gathered() -> ParallelStyle:
    return ColwiseParallel(output_layouts=Replicate())


def _by_rows_of_whole() -> ParallelStyle:
    return RowwiseParallel(input_layouts=Replicate())


BY_COLUMNS: Final = "colwise"
WHOLE: Final = "replicate"
STYLES: Final[Mapping[str, Callable[[], ParallelStyle]]] = {
    BY_COLUMNS: ColwiseParallel,
    "rowwise": RowwiseParallel,
    "colwise_rep": _by_columns_gathered,
    "colwise_gather_output": _by_columns_gathered,
    "rowwise_rep": _by_rows_of_whole,
    "rowwise_split_input": _by_rows_of_whole,
    "embedding_rowwise": _by_rows_of_whole,
    "embedding_colwise": _by_columns_gathered,
    "replicated_with_grad_allreduce": SummedGradients,
}
"""In the words of transformers 4.50 to 5.24; beside them WHOLE, which splits nothing."""


def brings_plan(module: Module) -> bool:
    """Whether a part of the module says how it splits, as models of transformers do."""
    return any(_plan_of(part) for part in module.modules())


def brought_plan(module: Module, matches: Callable[[str, str], bool], workers: int) -> dict[str, ParallelStyle]:
    """Styles by the names of the module's parts, of all plans in it; an outer plan's go before an inner one's.

    `matches` says whether a name fits a pattern. ValueError, with key and remedy, for a style that torch has not, for
    attention heads that the workers cannot share equally, and for dropout of what each has a part of.
    """
    parts, styles = dict(module.named_modules()), dict[str, str]()
    parameters = [name for name, _ in module.named_parameters()]
    for pattern, style in _entries(module):
        for name in (name for name in (*parts, *parameters) if matches(name, pattern)):
            styles.setdefault(name, style)
    plan: dict[str, ParallelStyle] = {}
    for name, style in styles.items():
        if style == WHOLE:
            continue
        if style not in STYLES or name not in parts:
            raise ValueError(
                f"model: {ATTRIBUTE} splits {name} in the style {style}, which ModelParallel does not know. Set "
                f"tensor: 1 (shard can split any layer), or {REMEDY}."
            )
        if style == BY_COLUMNS:
            _refuse_heads(parts, name, workers)
            _refuse_dropout(parts, name)
        plan[name] = STYLES[style]()
    return plan


def _entries(module: Module) -> Iterator[tuple[str, str]]:
    for name, part in module.named_modules():
        yield from ((f"{name}.{pattern}".lstrip("."), style) for pattern, style in _plan_of(part).items())


def _plan_of(part: Module) -> Mapping[str, str]:
    plan = getattr(part, ATTRIBUTE, None)
    return plan if isinstance(plan, Mapping) else {}


def _refuse_heads(parts: Mapping[str, Module], name: str, workers: int) -> None:
    attention = parts[name.rpartition(".")[0]]
    size = next((getattr(attention, key) for key in HEAD_SIZES if hasattr(attention, key)), None)
    width = getattr(parts[name], "out_features", None)
    if isinstance(size, int) and isinstance(width, int) and width // size % workers:
        raise ArgumentError(
            "contradiction",
            "tensor",
            f"{name} has {width // size} attention heads, which {workers} workers cannot share equally",
            f"Use a number that divides the number of heads, or {REMEDY}.",
        )


def _refuse_dropout(parts: Mapping[str, Module], name: str) -> None:
    above = name.rpartition(".")[0]
    chances = {key: value for key, value in vars(parts[above]).items() if "dropout" in key and isinstance(value, float)}
    chances |= {key: part.p for key, part in parts[above].named_children() if isinstance(part, Dropout)}
    for key, chance in chances.items():
        if chance > 0:
            raise ArgumentError(
                "contradiction",
                "tensor",
                f"{above}.{key} is {chance:g}, but all workers would draw the same dropout mask for different units",
                "Set the dropout to 0 in the model's config, or set tensor: 1.",
            )
