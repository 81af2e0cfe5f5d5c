"""Measures the layers of a model in a few steps of training: seconds, bytes, and which a tensor split divides.

Seconds may also be counted in floating point operations, which are the same each time.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Final

import torch
from torch import Tensor, nn

from scalebook.training.pricing.layers import Kind, Layer, scaled

STEPS: Final = range(4, 9)
"""The steps of worker 0, alone, in which layers are measured; the median counts."""
LISTS: Final = (nn.Sequential, nn.ModuleList)
COUNTS: Final = (2, 4, 8, 16)
"""Microbatches whose seconds are measured."""
REPEATS: Final = 3
"""Times that each is measured; the fastest counts."""
OUTSIDE: Final = "outside the layers"
"""Name of what is no layer's: fetching, the loss, parameters that no layer has."""


@dataclass(frozen=True)
class Unit:
    """A module that is measured as one. `block`: that of the modules between which no stage may begin."""

    name: str
    module: nn.Module
    block: str


@dataclass
class _Step:
    """One step. `begun`: when forward passes of units began; `ready`: when gradients of their outputs were there. Bytes
    of outputs, and of what is kept for the backward pass, by name. `storages`: those that are counted, or parameters'.
    """

    begun: list[tuple[float, str]] = field(default_factory=list)
    ready: list[tuple[float, str]] = field(default_factory=list)
    output: dict[str, float] = field(default_factory=dict)
    saved: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    storages: set[int] = field(default_factory=set)
    inputs: dict[str, Tensor] = field(default_factory=dict)
    """Of units that take one tensor."""
    forward_end_s: float = 0.0
    backward_end_s: float = 0.0

    @property
    def names(self) -> list[str]:
        """Of the units, in turn of their first calls."""
        return list(dict.fromkeys(name for _, name in self.begun))

    def seconds(self, name: str) -> tuple[float, float]:
        """Of a unit, forward and backward: from its beginning, or the gradient of its output, to the next one's."""
        ready = sorted(self.ready, key=lambda event: event[0])  # in their turn where nothing passed between
        forward_s, backward_s = _until_next(self.begun, self.forward_end_s), _until_next(ready, self.backward_end_s)
        return forward_s.get(name, 0.0), backward_s.get(name, 0.0)


def _until_next(events: list[tuple[float, str]], end_s: float) -> dict[str, float]:
    seconds: dict[str, float] = defaultdict(float)
    for (begun_s, name), (next_s, _) in zip(events, [*events[1:], (end_s, "")], strict=False):
        seconds[name] += next_s - begun_s
    return seconds


class LayerTimes:
    """Hooks on a model's units, from `begin_step` to `end_step`."""

    def __init__(self, model: nn.Module) -> None:
        self.units = list(units(model))
        self._model = model
        self._steps: list[_Step] = []
        self._hooks: list[Any] = []

    def begin_step(self) -> None:
        """Before the forward pass of a step."""
        self.end_step()  # where a step had no backward pass
        self._steps.append(_Step())
        for unit in self.units:
            self._hooks += self._watch(unit, self._steps[-1])

    def end_step(self) -> None:
        """After its backward pass."""
        if not self._hooks:
            return
        self._steps[-1].backward_end_s = self._now()
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        for earlier in self._steps[:-1]:
            earlier.inputs.clear()

    def microbatch_factors(self) -> dict[str, float]:
        """By how much longer a batch takes in so many microbatches: units of the last step that take one tensor are
        computed once more, forward and backward, with a part of it. Empty if no part divides the batch."""
        inputs = self._steps[-1].inputs if self._steps else {}
        modules = [(unit.module, inputs[unit.name]) for unit in self.units if unit.name in inputs]
        samples = min((len(batch) for _, batch in modules if batch.dim()), default=0)
        counts = [count for count in COUNTS if samples and samples % count == 0]
        modules = [(module, batch) for module, batch in modules if batch.dim() and len(batch) == samples]
        sums: list[list[Tensor]] = [[] for _ in modules]
        seconds = {
            count: min(self._computed_s(modules, samples // count, sums) for _ in range(REPEATS))
            for count in (1, *counts)
        }
        return {str(count): max(1.0, count * seconds[count] / seconds[1]) for count in counts if seconds[1]}

    def _computed_s(self, modules: list[tuple[nn.Module, Tensor]], samples: int, sums: list[list[Tensor]]) -> float:
        """Seconds of so many samples, module after module as in a step. Where they are a part of a batch, gradients are
        added to `sums`."""
        began_s = self._now()
        for place, (module, batch) in enumerate(modules):
            gradients = _gradients(module, batch[:samples].contiguous())
            if samples == len(batch):
                sums[place] = gradients
            else:
                for whole, gradient in zip(sums[place], gradients, strict=True):
                    whole += gradient
        return self._now() - began_s

    def layers(self, gradient_s: float, weights: float) -> list[Layer]:
        """By their medians, in turn of their calls, pairs of matrices joined. What is left of a
        gradient's seconds, and of all parameters' bytes, is one more. Empty if nothing was measured."""
        if not self._steps:
            return []
        by_name = {unit.name: unit for unit in self.units}
        counted, cuts = set[int](), self._cuts(by_name)
        measured = [self._layer(by_name[name], name in cuts, counted) for name in self._steps[-1].names]
        left_s = gradient_s - sum(layer.seconds for layer in measured)
        if left_s < 0:  # hooks take time themselves
            measured = list(scaled(measured, gradient_s / (gradient_s - left_s)))
        joined = list(_joined(measured, by_name))
        bytes_left = weights - sum(layer.parameter_bytes for layer in measured)
        output_bytes = measured[-1].output_bytes if measured else 0.0
        return [*joined, Layer(OUTSIDE, max(0.0, left_s), 0.0, output_bytes, max(0.0, bytes_left), cut=False)]

    def _cuts(self, by_name: Mapping[str, Unit]) -> set[str]:
        """The units with whose first calls a block begins, while no other is under way: none was called before that is
        called again."""
        called = [(by_name[name].block, name) for _, name in self._steps[-1].begun]
        first = {block: len(called) - place for place, (block, _) in enumerate(reversed(called), 1)}
        last = {block: place for place, (block, _) in enumerate(called)}
        return {
            name
            for place, (block, name) in enumerate(called)
            if first[block] == place and not any(first[other] < place <= last[other] for other in first)
        }

    def _layer(self, unit: Unit, cut: bool, counted: set[int]) -> Layer:
        """`counted`: ids of parameters that layers before it have, and that count there."""
        both = [step.seconds(unit.name) for step in self._steps]
        parameters = {id(each): each for each in unit.module.parameters()}
        parameter_bytes = float(sum(each.nbytes for key, each in parameters.items() if key not in counted))
        counted |= parameters.keys()
        kind: Kind = "column" if isinstance(unit.module, nn.Linear) else "whole"
        return Layer(
            unit.name,
            statistics.median(forward_s for forward_s, _ in both),
            statistics.median(backward_s for _, backward_s in both),
            self._steps[-1].output.get(unit.name, 0.0),
            parameter_bytes,
            self._steps[-1].saved[unit.name],
            kind,
            cut=cut,
        )

    def _watch(self, unit: Unit, step: _Step) -> Iterator[Any]:
        """Hooks on one unit. A forward pass within the backward pass, where activations are computed again, is part of
        that."""
        keeps = torch.autograd.graph.saved_tensors_hooks(lambda tensor: self._keep(unit, step, tensor), _same)

        def before(module: nn.Module, args: Any, kwargs: Any) -> None:
            if not step.ready:
                if len(args) == 1 and not kwargs and isinstance(args[0], Tensor):
                    step.inputs[unit.name] = args[0].detach()
                step.begun.append((self._now(), unit.name))
                keeps.__enter__()

        def after(module: nn.Module, args: Any, output: Any) -> None:
            if step.ready:
                return
            keeps.__exit__()
            step.forward_end_s = self._now()
            tensors = [tensor for tensor in _tensors(output) if tensor.is_floating_point()]
            step.output[unit.name] = float(sum(tensor.nbytes for tensor in tensors))
            is_new = not any(tensor is tensors[0] for tensor in _tensors(args)) if tensors else False
            if is_new and tensors[0].requires_grad:  # what a unit hands on as it is, is its maker's
                self._hooks.append(tensors[0].register_hook(there))  # type: ignore[no-untyped-call]  # torch's

        def there(gradient: Tensor) -> None:
            step.ready.append((self._now(), unit.name))

        yield unit.module.register_forward_pre_hook(before, with_kwargs=True)
        yield unit.module.register_forward_hook(after)

    def _now(self) -> float:
        """Once the GPU is done, if the model is on one."""
        device = next((parameter.device for parameter in self._model.parameters()), torch.device("cpu"))
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return perf_counter()

    def _keep(self, unit: Unit, step: _Step, tensor: Tensor) -> Tensor:
        """Count each storage once, and no parameter."""
        where = tensor.untyped_storage().data_ptr()
        if not step.storages:
            step.storages |= {parameter.untyped_storage().data_ptr() for parameter in self._model.parameters()}
        if where not in step.storages:
            step.storages.add(where)
            step.saved[unit.name] += tensor.untyped_storage().nbytes()
        return tensor


def _gradients(module: nn.Module, batch: Tensor) -> list[Tensor]:
    """Of a module's parameters, after a forward and a backward pass by itself; the module keeps none."""
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    inputs = [*parameters, batch.requires_grad_()] if batch.is_floating_point() else parameters
    with torch.enable_grad():
        outputs = [output for output in _tensors(module(batch)) if output.requires_grad]
    if not outputs or not inputs:
        return []
    made = torch.autograd.grad(outputs[0], inputs, torch.ones_like(outputs[0]), allow_unused=True)
    return [gradient for gradient in made[: len(parameters)] if gradient is not None]


def units(model: nn.Module, name: str = "", block: str = "") -> Iterator[Unit]:
    """The modules of a model that are measured as one: without children, or with parameters of their own. A child of a
    list is a block, and so is what stands beside lists; modules without any list around them are one block."""
    children = list(model.named_children())
    if name and (not children or any(True for _ in model.parameters(recurse=False))):
        yield Unit(name, model, block)
        return
    for child_name, child in children:
        full = f"{name}.{child_name}" if name else child_name
        yield from units(child, full, block or _block(model, name, child, full))


def _block(model: nn.Module, name: str, child: nn.Module, full: str) -> str:
    """Of a module's child; "" where blocks are further inside."""
    if _has_lists(child) and (isinstance(child, LISTS) or not isinstance(model, LISTS)):
        return ""
    return full if _has_lists(model) else name or "the model"


def _has_lists(module: nn.Module) -> bool:
    return any(isinstance(each, LISTS) for each in module.modules())


def _joined(layers: list[Layer], units_by_name: Mapping[str, Unit]) -> Iterator[Layer]:
    """Two matrices one after the other, with nothing but modules without parameters between, become a pair."""
    place = 0
    while place < len(layers):
        end = _pair_end(layers, place, units_by_name)
        run = layers[place : end + 1]
        if end > place:
            first = units_by_name[run[0].name].module
            assert isinstance(first, nn.Linear), "the first layer of a pair is a matrix"
            yield Layer(
                f"{run[0].name} to {run[-1].name}",
                sum(layer.forward_s for layer in run),
                sum(layer.backward_s for layer in run),
                run[-1].output_bytes,
                sum(layer.parameter_bytes for layer in run),
                sum(layer.saved_bytes for layer in run),
                "pair",
                first.in_features,
                run[0].cut,
            )
        else:
            yield run[0]
        place = end + 1


def _pair_end(layers: list[Layer], place: int, units_by_name: Mapping[str, Unit]) -> int:
    """The place of the matrix that makes a pair with that at `place`; `place` if there is none."""
    first = units_by_name[layers[place].name].module
    if not isinstance(first, nn.Linear):
        return place
    for end in range(place + 1, len(layers)):
        module = units_by_name[layers[end].name].module
        if isinstance(module, nn.Linear):
            return end if module.in_features == first.out_features else place
        if any(True for _ in module.parameters()):
            break
    return place


def _tensors(output: Any) -> Iterator[Tensor]:
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, Mapping):
        for value in output.values():
            yield from _tensors(value)
    elif isinstance(output, list | tuple):
        for value in output:
            yield from _tensors(value)


def _same(tensor: Tensor) -> Tensor:
    return tensor
