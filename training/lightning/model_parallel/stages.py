"""The stages of a module, as it says itself by `stages()`: one on each worker of a pipeline, the others without values.

Begin with `OwnStage`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any, Final

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.nn import Module, Parameter, Sequential
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import LBFGS, Optimizer

from scalebook.training.engine.rules import ArgumentError
from scalebook.training.experiments import pipeline_order

HOW: Final = (
    "Define stages(self), which returns a list of modules such as [*self.layers, self.head]. Each module takes the "
    "output of the module before it, and self(...) then runs all of them in order"
)


def parts_of(module: Module, stages: int) -> list[Module]:
    """The module's `stages()`: parts that follow each other, at least one for each stage. Without it, the children of
    the one Sequential that has all parameters. ValueError, with key and remedy, for other modules."""
    own, kind = getattr(module, "stages", None), type(module).__name__
    if callable(own) and not isinstance(own, Module):
        parts = list(own())
    else:
        holders = [child for child in module.children() if any(True for _ in child.parameters())]
        is_plain = len(holders) == 1 and isinstance(holders[0], Sequential) and not module._parameters
        parts = list(holders[0].children()) if is_plain else []
        if not parts:
            raise ArgumentError(
                "contradiction", "stages", f"{kind} does not define how to divide it into stages", f"{HOW}."
            )
    if (other := next((part for part in parts if not isinstance(part, Module)), None)) is not None:
        raise ValueError(
            f"model: stages() of {kind} returns a {type(other).__name__}, but must return only modules. {HOW}."
        )
    if len(parts) < stages:
        raise ArgumentError(
            "contradiction",
            "stages",
            f"{kind} has {len(parts)} parts in its stages(), fewer than {stages} stages",
            f"Set stages: {len(parts)}, or return smaller parts.",
        )
    return parts


def parts_by_stage(module: Module, stages: int) -> list[Sequence[Module]]:
    """The parts of each stage, cut by the numbers of their parameters. ValueError as `parts_of`."""
    parts = parts_of(module, stages)
    begins = pipeline_order.cut([_size(part) for part in parts], stages)
    return [parts[begin:end] for begin, end in zip(begins, [*begins[1:], None], strict=True)]


def keep_own_state(optimizer: Optimizer) -> None:
    """Forget what an optimizer that is new has for parameters of other stages. ValueError for one that computes with
    all parameters as one."""
    if isinstance(optimizer, LBFGS):
        raise ValueError(
            "optimizer: LBFGS needs all parameters together, but each worker has only one stage. Use another "
            "optimizer, such as "
            "torch.optim.SGD or torch.optim.Adam, or strategy ddp."
        )
    for parameter in [each for each in optimizer.state if each.is_meta]:
        del optimizer.state[parameter]


class OwnStage:
    """What one worker of a pipeline has of a module: the parameters and buffers of its stage, and of what is in none.

    Those of other stages become tensors on the device `meta`, of the same shape and without values, so that an
    optimizer is made of all parameters, and numbers them as in one process.

    Args:
        stage: Of this worker, from 0.
        stages: How many there are.

    Attributes:
        parts: This stage's, in turn.
        everything: All parts, in turn.
        names: Of this stage's parameters and buffers.
        rest: Names of those in no stage. The steps of the module read them, so they are trained by the last stage.
        foreign: The values of the others, until `forget`.
    """

    def __init__(self, module: Module, stage: int, stages: int) -> None:
        self._module, self._is_whole = module, False
        if any(isinstance(parameter, DTensor) for parameter in module.parameters()):
            raise ArgumentError(
                "contradiction",
                "stages",
                f"configure_model already splits {type(module).__name__}, but stages need layers that are not split",
                "Remove stages, or do not split the model.",
            )
        by_stage = parts_by_stage(module, stages)
        self.everything = [part for parts in by_stage for part in parts]
        self.parts: Sequence[Module] = by_stage[stage]
        owners = stages_of_tensors(module, by_stage)
        own = {name: owners.get(id(tensor)) for name, tensor in _tensors(module)}
        self.names = [name for name, owner in own.items() if owner == stage]
        self.rest = [name for name, owner in own.items() if owner is None]
        self.foreign: dict[str, Tensor] = {}
        registered = {id(each) for each in module.modules()}
        self._loose = [
            each for part in self.everything for each in part.modules() if id(each) not in registered
        ]  # that stages() has made: train() and eval() of the model do not reach them
        metas: dict[int, Tensor] = {}
        for name, owner, leaf, tensor in list(_places(module)):
            if (has := own[name]) not in (stage, None):
                self.foreign[name] = tensor
                if id(tensor) not in metas:
                    metas[id(tensor)] = _without_values(tensor)
                _put(owner, leaf, metas[id(tensor)])
                owner.register_forward_pre_hook(partial(self._refuse_call, name.rpartition(".")[0], has))

    def _refuse_call(self, name: str, owner: int | None, _module: Module, _inputs: Any) -> None:
        if not self._is_whole:
            raise ValueError(
                f"model: {name} is called directly, but it is in stage {owner}, which another worker computes. In the "
                f"steps of {type(self._module).__name__}, call self(...), which returns the output of all stages."
            )

    def computed(self, *args: Any, **kwargs: Any) -> Any:
        """The output of this stage."""
        return self._in_turn(self.parts, *args, **kwargs)

    def all_computed(self, *args: Any, **kwargs: Any) -> Any:
        """The output of all stages, in the block of `whole`."""
        return self._in_turn(self.everything, *args, **kwargs)

    def _in_turn(self, parts: Sequence[Module], *args: Any, **kwargs: Any) -> Any:
        for each in self._loose:
            each.training = self._module.training
        value = parts[0](*args, **kwargs)
        for part in parts[1:]:
            value = part(value)
        return value

    def refuse_batch_statistics(self) -> None:
        """ValueError for a layer that is trained with statistics of its batch, which would be a microbatch."""
        for name, part in self._module.named_modules():
            if isinstance(part, _BatchNorm) and part.training:
                raise ArgumentError(
                    "contradiction",
                    "stages",
                    f"{name}, a {type(part).__name__}, normalises with batch statistics, which would cover only one "
                    "microbatch",
                    "Use LayerNorm or GroupNorm, freeze the layer (eval), or use shard instead.",
                )

    def forget(self) -> None:
        """Free the values of other stages."""
        self.foreign = {}

    def to(self, device: torch.device) -> None:
        """Move what has values."""
        module: Any = self._module
        module._apply(lambda tensor: tensor if tensor.is_meta else tensor.to(device))

    @contextmanager
    def whole(self, values: Mapping[str, Tensor]) -> Iterator[None]:
        """The module has all `values` (by name) in the block, and afterwards its own tensors again."""
        places, self._is_whole = list(_places(self._module)), True
        shared: dict[int, Tensor] = {}
        for name, owner, leaf, tensor in places:
            value = values[name]
            full = Parameter(value, tensor.requires_grad) if isinstance(tensor, Parameter) else value
            _put(owner, leaf, shared.setdefault(id(tensor), full))
        try:
            yield
        finally:
            self._is_whole = False
            for _, owner, leaf, tensor in places:
                _put(owner, leaf, tensor)

    def loadable(self, weights: Mapping[str, Any]) -> dict[str, Any]:
        """Whole weights of a checkpoint, without the values of other stages'."""
        own = self._module.state_dict(keep_vars=True)
        return {
            name: value.to("meta") if isinstance(value, Tensor) and getattr(own.get(name), "is_meta", False) else value
            for name, value in weights.items()
        }

    def brings(self, state: Mapping[str, Any], with_rest: bool) -> dict[str, Any]:
        """What this worker adds to a state by name."""
        wanted = {*self.names, *(self.rest if with_rest else ())}
        return {name: value for name, value in state.items() if name in wanted}

    def values(self, with_rest: bool) -> dict[str, Tensor]:
        """This stage's parameters and buffers by name, and those of no stage."""
        return self.brings({name: tensor.detach() for name, tensor in _tensors(self._module)}, with_rest)


def own_state(optimizer: Optimizer, saved: Mapping[str, Any]) -> dict[str, Any]:
    """A whole state of the optimizer, as torch's `state_dict` has it, without those of other stages' parameters."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    numbers = [number for group in saved["param_groups"] for number in group["params"]]
    others = {number for number, parameter in zip(numbers, parameters, strict=False) if parameter.is_meta}
    return {**saved, "state": {number: state for number, state in saved["state"].items() if number not in others}}


def stages_of_tensors(module: Module, by_stage: Sequence[Sequence[Module]]) -> dict[int, int]:
    """The stage of each parameter and buffer, by its id. ValueError, with remedy, for one in two stages, and for one
    that the module does not have."""
    names = {id(tensor): name for name, tensor in reversed(list(_tensors(module)))}
    owners: dict[int, int] = {}
    for stage, parts in enumerate(by_stage):
        for tensor in chain.from_iterable((*part.parameters(), *part.buffers()) for part in parts):
            if id(tensor) not in names:
                raise ValueError(
                    f"model: stages() of {type(module).__name__} returns parameters that are not part of the model, so "
                    "they are neither trained nor saved. Create them in __init__ or configure_model."
                )
            if owners.setdefault(id(tensor), stage) != stage:
                raise ValueError(
                    f"model: {names[id(tensor)]} is in stage {owners[id(tensor)]} and in stage {stage}, but stages "
                    "cannot share a parameter. Let stages() return one part that contains both uses, untie them, or "
                    "use the strategy's shard, which splits any model."
                )
    return owners


def _size(module: Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _tensors(module: Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters and buffers by all their names."""
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


def _places(module: Module) -> Iterator[tuple[str, Module, str, Tensor]]:
    """Where parameters and buffers stand: full name, module, name in it, tensor."""
    for prefix, owner in module.named_modules():
        for leaf, tensor in chain(owner._parameters.items(), owner._buffers.items()):
            if tensor is not None:
                yield f"{prefix}.{leaf}".strip("."), owner, leaf, tensor


def _put(owner: Module, leaf: str, tensor: Tensor) -> None:
    if isinstance(tensor, Parameter):
        owner._parameters[leaf] = tensor
    else:
        owner._buffers[leaf] = tensor


def _without_values(tensor: Tensor) -> Tensor:
    empty = tensor.detach().to("meta")
    return Parameter(empty, tensor.requires_grad) if isinstance(tensor, Parameter) else empty
