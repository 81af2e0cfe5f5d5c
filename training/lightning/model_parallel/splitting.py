"""Splits a module over workers, as it says itself: by `parallel_plan()` and `shard_units()`."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from itertools import chain
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, Replicate, _random
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module
from torch.nn import Embedding, EmbeddingBag, Linear, Module, ModuleList, MultiheadAttention, Parameter, Sequential
from torch.optim import LBFGS, Adafactor, Optimizer, Rprop
from torch.utils._pytree import tree_map_only

from scalebook.training.engine.rules import ArgumentError
from scalebook.training.lightning.model_parallel.brought_plan import ATTRIBUTE, brings_plan, brought_plan
from scalebook.training.lightning.tied_weights import refuse_shared_memory

Plan = Mapping[str, ParallelStyle]
Units = Mapping[str, Sequence[str]]
DATA: Final = "data_parallel"
TENSOR: Final = "tensor_parallel"
"""The dimensions of Lightning's device mesh."""
STEPS: Final = ("training_step", "validation_step", "test_step", "predict_step")
"""What Lightning calls of a module; each may read any parameter."""
SMALLEST_UNIT: Final = 0.01
"""Share of the model's parameters from which a part is worth collectives of its own."""
SEEDS: Final = 2**62
_CLASS: Final = "_scalebook_class"
WHOLE: Final = (Adafactor, LBFGS, Rprop)
"""Optimizers of torch that need whole parameters."""
HOW: Final = (
    'Define parallel_plan(self), which maps layer names to torch\'s styles, such as {"net.0": '
    'ColwiseParallel(), "net.2": RowwiseParallel()}, or split the model in configure_model with self.device_mesh'
)


def split(module: Module, mesh: DeviceMesh) -> None:
    """Split the module in place, over a mesh with the dimensions DATA and TENSOR. What it has split itself, in
    configure_model, stays as it is.

    All workers begin with the parameters and buffers of worker 0. ValueError, with key and remedy, for what cannot be
    split so.
    """
    refuse_sparse(module)
    refuse_shared_memory(module)
    if not any(isinstance(parameter, DTensor) for parameter in module.parameters()):
        begin_alike(module, mesh.device_type)
        if mesh[TENSOR].size() > 1:
            plan, tied = tensor_plan(module, mesh[TENSOR].size()), _tied(module)
            with _what_torch_rejects("split the layers of parallel_plan()"):
                parallelize_module(module, mesh[TENSOR], dict(plan))
            for name in plan:
                module.get_submodule(name).register_forward_hook(_without_views)
            _tie_again(module, tied)
        if mesh[DATA].size() > 1:
            _shard(module, mesh[DATA])
    if mesh[DATA].size() > 1:
        _refuse_left_out(module)


def attributes_of(module: Module) -> dict[str, dict[str, Any]]:
    """By name, the attributes of whole parameters that have any, with the name of a class of their own."""
    by_name = {}
    for name, parameter in module.named_parameters():
        own = {key: value for key, value in vars(parameter).items() if key != "_is_param"}
        if type(parameter) is not Parameter and not isinstance(parameter, DTensor):
            own[_CLASS] = type(parameter).__name__
        if own:
            by_name[name] = own
    return by_name


def give_attributes(module: Module, attributes: Mapping[str, Mapping[str, Any]]) -> None:
    """Give the split parameters the attributes that the whole ones had; before optimizers look at them."""
    for name, parameter in module.named_parameters():
        vars(parameter).update(attributes.get(name, {}))


def refuse_sparse(module: Module) -> None:
    """ValueError, with remedy, for layers with sparse gradients."""
    for name, part in module.named_modules():
        if isinstance(part, Embedding | EmbeddingBag) and part.sparse:
            raise ValueError(
                f"model: the gradients of {name} are sparse, but ModelParallel sums only dense gradients. Set "
                "sparse=False, or use AsyncPS."
            )


def begin_alike(module: Module, device: str) -> None:
    """Give all workers worker 0's parameters and buffers, those that are whole and have values."""
    for tensor in chain(module.parameters(), module.buffers()):
        if not tensor.is_meta and not isinstance(tensor, DTensor):
            sent = tensor.detach().to(device)
            dist.broadcast(sent, 0)
            if sent.data_ptr() != tensor.data_ptr():
                tensor.detach().copy_(sent)


def tensor_plan(module: Module, workers: int) -> dict[str, ParallelStyle]:
    """The module's `parallel_plan()`, with each name that has a wildcard written out; of a module without one the plans
    that its parts bring."""
    kind, own = type(module).__name__, getattr(module, "parallel_plan", None)
    parts = dict(module.named_modules())
    if own is None and brings_plan(module):
        brought = brought_plan(module, _matches, workers)
        for name, style in brought.items():
            _refuse_unsplittable(parts, name, style, workers, ATTRIBUTE)
        return brought
    if own is None:
        raise ArgumentError(
            "contradiction",
            "tensor",
            f"{kind} does not define how to split it",
            f"{HOW}. Or set tensor: 1, which needs no plan.",
        )
    plan: Plan = own()
    styles: dict[str, ParallelStyle] = {}
    for pattern, style in plan.items():
        named = [name for name in parts if _matches(name, pattern)]
        if not named:
            raise ValueError(
                f"model: parallel_plan names {pattern}, but {kind} has no such part. Use names from named_modules()."
            )
        for name in named:
            _refuse_unsplittable(parts, name, style, workers, "parallel_plan")
            styles[name] = style
    return styles


def _matches(name: str, pattern: str) -> bool:
    tokens, wanted = name.split("."), pattern.split(".")
    return len(tokens) == len(wanted) and all(map(fnmatchcase, tokens, wanted))


def _refuse_unsplittable(parts: Mapping[str, Module], name: str, style: ParallelStyle, workers: int, plan: str) -> None:
    if not isinstance(style, ColwiseParallel | RowwiseParallel):
        return
    part, above = parts[name], name.rpartition(".")[0]
    if not isinstance(part, Linear | Embedding) or isinstance(parts[above], MultiheadAttention):
        kind = type(part).__name__ + (
            " of a MultiheadAttention" if isinstance(parts[above], MultiheadAttention) else ""
        )
        raise ValueError(
            f"model: {plan} splits {name}, a {kind}, but torch can split only Linear and Embedding layers by columns "
            "or rows. Attention and convolutions would compute wrong values. Leave this layer out, and use shard, "
            "which can split any layer."
        )
    by_columns = isinstance(style, ColwiseParallel) == isinstance(part, Linear)
    width = part.weight.shape[0 if by_columns else 1]
    if width % workers:
        raise ArgumentError(
            "contradiction",
            "tensor",
            f"{name} has a width of {width}, which {workers} workers cannot share equally",
            f"Use a number that divides the width, or leave the layer out of {plan}.",
        )


def _tied(module: Module) -> list[list[str]]:
    """Names of the same parameter, such as a table of words that is the output layer too."""
    names: dict[int, list[str]] = defaultdict(list)
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names[id(parameter)].append(name)
    return [same for same in names.values() if len(same) > 1]


def _tie_again(module: Module, tied: Iterable[Sequence[str]]) -> None:
    """Torch's styles make a parameter of its own for each layer that they split."""
    for first, *others in tied:
        one = module.get_parameter(first)
        for other in others:
            layout = [getattr(module.get_parameter(name), "placements", None) for name in (first, other)]
            if layout[0] != layout[1]:
                raise ValueError(
                    f"model: {first} and {other} share one parameter, but the plan splits only one of the layers, or "
                    "splits them differently. Give both layers styles that split the same dimension, or leave both "
                    "out."
                )
            above, _, name = other.rpartition(".")
            setattr(module.get_submodule(above), name, one)


def shard_units(module: Module) -> Units:
    """The parts of a module that are gathered at a time, by name, each with its methods besides `forward` that read its
    parameters.

    Its own `shard_units()`, or else the children of each Sequential and ModuleList that have 1 % of the parameters and
    share none with other parts.
    """
    own = getattr(module, "shard_units", None)
    if own is not None:
        units: Units = own()
        parts = dict(module.named_modules())
        for name in units:
            if name not in parts:
                raise ValueError(
                    f"model: shard_units names {name}, but {type(module).__name__} has no such part. Use names from "
                    "named_modules()."
                )
        for first, second in _tied_across(module, units):
            raise ValueError(
                f"model: {first} and {second} share one parameter but are in different units of shard_units(). Name "
                "one part that contains both units, or name neither unit."
            )
        return units
    least = SMALLEST_UNIT * _size(module)
    units = {name: () for name, part in _children(module) if _size(part) >= least}
    while tied := [_unit_of(name, units) for names in _tied_across(module, units) for name in names]:
        units = {name: () for name in units if name not in tied}
    return units


def _tied_across(module: Module, units: Units) -> list[tuple[str, str]]:
    """Pairs of names of one parameter that two units have, or a unit and the rest of the module."""
    pairs = [(names[0], other) for names in _tied(module) for other in names[1:]]
    return [(one, other) for one, other in pairs if _unit_of(one, units) != _unit_of(other, units)]


def _unit_of(parameter: str, units: Units) -> str:
    """The innermost unit that has a parameter; empty for the rest of the module."""
    return max((unit for unit in units if parameter.startswith(f"{unit}.")), key=len, default="")


def _children(module: Module) -> Iterator[tuple[str, Module]]:
    for name, part in module.named_modules():
        if isinstance(part, Sequential | ModuleList):
            of_it = ((f"{name}.{child}".strip("."), each) for child, each in part.named_children())
            yield from ((child, each) for child, each in of_it if not isinstance(each, ModuleList))


def _size(module: Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _shard(module: Module, mesh: DeviceMesh) -> None:
    """Shard the units, inner ones first, and the rest with the root. Between its forward and its backward pass a
    worker gathers the parameters of one unit at a time."""
    units: dict[str, Sequence[str]] = {**shard_units(module)}
    methods = units.pop("", ())
    parts = dict(module.named_modules())
    for name in sorted(units, key=lambda name: -name.count(".")):
        with _what_torch_rejects(f"shard {name}"):
            parts[name].register_forward_hook(_without_views)
            fully_shard(parts[name], mesh=mesh)
        for method in units[name]:
            register_fsdp_forward_method(parts[name], method)
    module.register_forward_hook(_without_views)
    try:
        with _what_torch_rejects(f"shard {type(module).__name__}"):
            fully_shard(module, mesh=mesh)
    except TypeError as error:
        raise ValueError(
            f"model: FSDP2 cannot make a sharded class of {type(module).__name__} ({error}). If it derives from "
            "Generic, put Generic last among its bases: class Model(LightningModule, Generic[T])."
        ) from None
    _keep_name(module)
    _refuse_writes(module)
    for method in (*(step for step in STEPS if hasattr(module, step)), *methods):
        register_fsdp_forward_method(module, method)


@contextmanager
def _what_torch_rejects(attempt: str) -> Iterator[None]:
    """ValueError with torch's reason and a remedy: torch's own errors name neither the model nor another way."""
    try:
        yield
    except (AssertionError, NotImplementedError, RuntimeError, ValueError) as error:
        raise ValueError(
            f"model: torch cannot {attempt} ({error}). Change the model accordingly, or use strategy ddp."
        ) from error


def _refuse_writes(module: Module) -> None:
    """ValueError where a forward pass writes into a parameter, as layers do that are initialised by the first batch.

    It writes into what was gathered for that pass, and the parts that workers keep never see it.
    """
    before: dict[str, dict[str, int]] = {}

    def note(part: Module, _inputs: Any) -> None:
        before[names[part]] = _versions(part)

    def compare(part: Module, _inputs: Any, _output: Any) -> None:
        versions = before.pop(names[part], {})
        for name, version in _versions(part).items():
            if version != versions.get(name, version):
                raise ValueError(
                    f"model: a forward pass writes into {f'{names[part]}.{name}'.lstrip('.')}, but with sharded "
                    "parameters this write is lost. If the first batch initialises this tensor, make a forward pass in "
                    "configure_model; otherwise use strategy ddp."
                )

    names = {part: name for name, part in module.named_modules() if part is not module and part._parameters}
    for part in names:
        part.register_forward_pre_hook(note)
        part.register_forward_hook(compare, prepend=True)  # before FSDP2 gives up what it has gathered


def _versions(part: Module) -> dict[str, int]:
    """How often each of the part's own parameters has been written into."""
    return {name: parameter._version for name, parameter in part._parameters.items() if parameter is not None}


def _keep_name(module: Module) -> None:
    """FSDP2 gives a module a class of its own, FSDPMyModel, which errors and logs would name."""
    sharded, own = type(module).__mro__[0], type(module).__mro__[2]
    for attribute in ("__name__", "__qualname__", "__module__"):
        setattr(sharded, attribute, getattr(own, attribute))


def refuse_optimizers(optimizers: Iterable[Optimizer]) -> None:
    """ValueError, with remedy, for optimizers that cannot step parameters of which a worker has a part."""
    for optimizer in optimizers:
        kind = type(optimizer).__name__
        if isinstance(optimizer, WHOLE):
            raise ValueError(
                f"optimizer: {kind} needs all parameters together, or whole rows and columns, but each worker has only "
                "a part of the parameters. Use another optimizer, such as torch.optim.SGD or torch.optim.Adam, or "
                "strategy ddp."
            )
        kinds = {getattr(parameter, _CLASS, None) for group in optimizer.param_groups for parameter in group["params"]}
        if (special := {*kinds} - {None}) and not type(optimizer).__module__.startswith("torch.optim."):
            raise ValueError(
                f"optimizer: {kind} may depend on the parameters' class, {special.pop()}, but split parameters no "
                "longer have this class. Use an optimizer from torch.optim, or strategy ddp."
            )
        for group in optimizer.param_groups:
            at_once = next((name for name in ("fused", "foreach") if group.get(name)), None)
            if at_once and len({isinstance(parameter, DTensor) for parameter in group["params"]}) > 1:
                raise ValueError(
                    f"optimizer: {kind} with {at_once} updates all parameters in one call, but some are split and some "
                    f"are whole. Set {at_once}: false, or shard the model too."
                )


def _without_views(_part: Module, _inputs: Any, output: Any) -> Any:
    """Copies in place of views, which may be written into, as by ReLU(inplace=True). In a view, FSDP2 would not gather
    for the backward pass, and torch refuses it where the view is of a layer's part."""
    return tree_map_only(Tensor, lambda each: each.clone() if each.requires_grad and each._is_view() else each, output)


def _refuse_left_out(module: Module) -> None:
    """A parameter that no unit has would be trained by each worker on its own batches, and drift apart."""
    for name, parameter in module.named_parameters(remove_duplicate=False):
        dims: Any = parameter.device_mesh.mesh_dim_names if isinstance(parameter, DTensor) else ()
        if parameter.requires_grad and DATA not in (dims or ()):
            raise ValueError(
                f"model: {name} is not in any shard, so each worker would train a separate copy on its own batches. If "
                "two units "
                "of shard_units() share it, name a part that contains both; if configure_model splits the model, call "
                f'fully_shard there, with self.device_mesh["{DATA}"].'
            )


# --- random numbers --------------------------------------------------------------------------------------------------


class PartsApart:
    """What torch asks, in place of its tracker for GPUs, when an operation on a DTensor draws random numbers.

    Torch draws different numbers for different parts on GPUs alone. On a CPU all workers would fill their parts with
    the same numbers, and a matrix whose weights are made when it is split already would have the same columns twice.
    """

    distribute_region_enabled = True

    @contextmanager
    def _distribute_region(self, spec: Any, generator: torch.Generator | None = None) -> Iterator[None]:
        """Draw from a seed that is this part's; all workers' generators move on alike, by one number."""
        seed = int(torch.randint(SEEDS, (), generator=generator))
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed + number_of_part(spec))
            yield


def number_of_part(spec: Any) -> int:
    """Which part of a tensor this worker has, from 0; workers with the same values have the same number."""
    number = 0
    for dim, placement in enumerate(spec.placements):
        if not isinstance(placement, Replicate):
            number = number * spec.mesh.size(dim) + spec.mesh.get_local_rank(dim)
    return number


def draw_parts_apart(device: str) -> None:
    """From now on, in this process."""
    if device == "cpu":
        _random._rng_tracker = PartsApart()  # type: ignore[assignment]  # of which it uses these two
