"""The layers of a model: what each takes of a gradient, and how a split over several workers treats it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isclose
from typing import Any, Final, Literal, get_args

from scalebook.training.base import ConfigError
from scalebook.training.pricing.quantities import quantity

Kind = Literal["pair", "column", "whole"]
BACKWARD: Final = 2.0
"""A backward pass over the forward pass before it, if not measured: twice the multiply-adds."""
KEYS: Final = ("name", "kind", "forward", "flops", "backward", "output", "parameters", "saved", "width", "cut", "count")
KEY: Final = "profile.layers"
OFF: Final = 0.1
"""By how much the seconds of all layers may differ from those of a gradient."""


@dataclass(frozen=True)
class Layer:
    """One layer, for the batch of one gradient on one worker.

    Args:
        name: Name of the layer in the model.
        forward_s: Seconds of the layer's forward pass.
        backward_s: Seconds of the layer's backward pass.
        output_bytes: Bytes that the layer passes to the next layer.
        parameter_bytes: Bytes of the layer's parameters.
        saved_bytes: Bytes that the forward pass keeps for the backward pass.
        kind: How a tensor split treats it. `pair`: two matrices, the first split by columns, the second by rows, so
            that the outputs are summed once (Shoeybi et al. 2019). `column`: one matrix split by columns, whose outputs
            are gathered (Dean et al. 2012). `whole`: each worker computes all of it.
        width: Width of the input, and of the output, of a pair; 0: not known.
        cut: Whether a pipeline stage may begin with this layer.
    """

    name: str
    forward_s: float
    backward_s: float
    output_bytes: float
    parameter_bytes: float
    saved_bytes: float = 0.0
    kind: Kind = "whole"
    width: int = 0
    cut: bool = True

    @property
    def seconds(self) -> float:
        return self.forward_s + self.backward_s

    def held(self, tensor: int) -> float:
        """Bytes of its parameters that each of so many workers has."""
        return self.parameter_bytes / tensor if self.is_divided else self.parameter_bytes

    @property
    def is_divided(self) -> bool:
        """Whether a tensor split divides its work and its parameters."""
        return self.kind != "whole"


def read_layers(written: object, gradient_s: float) -> tuple[Layer, ...]:
    """The layers that a person has written, or `written_layers`. ConfigError, naming key and remedy, if they are none.

    Layers have either seconds (`forward`), which make up `gradient_s`, or floating point operations (`flops`), by which
    they share it.
    `count: 12` stands for twelve alike.
    """
    if not isinstance(written, list | tuple) or not all(isinstance(entry, Mapping) for entry in written):
        raise ConfigError(KEY, f"is {written!r}", "Use a list of {name: a, forward: 3 ms, output: 1 MB, ...}.")
    entries = [entry for place, each in enumerate(written) for entry in [_checked(each, place)] * _count(each, place)]
    by_flops = ["flops" in entry for entry in entries]
    if any(by_flops) and not all(by_flops):
        raise ConfigError(
            KEY,
            "has flops for some layers and seconds for others",
            "Give every layer flops, or give every layer seconds.",
        )
    second = 0.0
    if any(by_flops):
        whole = (1 + BACKWARD) * sum(_number(entry["flops"], f"{KEY}.flops") for entry in entries)
        if not whole:
            raise ConfigError(
                f"{KEY}.flops", "are 0 in every layer", "Set flops to the operations of each layer's forward pass."
            )
        second = gradient_s / whole
    layers = tuple(_layer(entry, second) for entry in entries)
    layers_s = sum(layer.seconds for layer in layers)
    if layers and not isclose(layers_s, gradient_s, rel_tol=OFF):
        why = f"take {layers_s:.3g} s together, but a gradient takes {gradient_s:.3g} s"
        raise ConfigError(
            KEY,
            why,
            "Set gradient to the time of one gradient. If layers are missing, add a layer with the remaining time.",
        )
    return layers


def _checked(entry: Mapping[str, Any], place: int) -> Mapping[str, Any]:
    for key in entry:
        if key not in KEYS:
            raise ConfigError(f"{KEY}.{place}.{key}", "unknown key", f"Known: {', '.join(KEYS)}.")
    if ("forward" in entry) == ("flops" in entry):
        what = "has both seconds and flops" if "flops" in entry else "has no seconds"
        raise ConfigError(f"{KEY}.{place}.forward", what, "Set forward: 3 ms or flops: 2e9, for the whole batch.")
    return entry


def _count(entry: Mapping[str, Any], place: int) -> int:
    count = entry.get("count", 1)
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ConfigError(
            f"{KEY}.{place}.count", f"is {count!r}", "Set it to the number of identical layers, such as 12."
        )
    return count


def _layer(entry: Mapping[str, Any], second: float) -> Layer:
    """`second`: seconds of one floating point operation, for layers that have these."""
    forward_s = (
        second * float(entry["flops"]) if "flops" in entry else quantity(entry["forward"], "s", f"{KEY}.forward")
    )
    output_bytes = quantity(entry.get("output", 0.0), "B", f"{KEY}.output")
    kind, width, cut = entry.get("kind", "whole"), entry.get("width", 0), entry.get("cut", True)
    if kind not in get_args(Kind):
        raise ConfigError(f"{KEY}.kind", f"is {kind!r}", f"Use one of {', '.join(get_args(Kind))}.")
    if isinstance(width, bool) or not isinstance(width, int) or width < 0:
        raise ConfigError(f"{KEY}.width", f"is {width!r}", "Set it to the width of the pair's input, such as 1024.")
    if not isinstance(cut, bool):
        raise ConfigError(f"{KEY}.cut", f"is {cut!r}", "Use true if a stage may begin with this layer, else false.")
    return Layer(
        str(entry.get("name", "")),
        forward_s,
        quantity(entry.get("backward", BACKWARD * forward_s), "s", f"{KEY}.backward"),
        output_bytes,
        quantity(entry.get("parameters", 0.0), "B", f"{KEY}.parameters"),
        quantity(entry.get("saved", output_bytes), "B", f"{KEY}.saved"),
        kind,
        width,
        cut,
    )


def _number(written: object, key: str) -> float:
    if isinstance(written, bool) or not isinstance(written, int | float) or written < 0:
        raise ConfigError(
            key, f"is {written!r}, not a number", "Set it to the operations of a forward pass, such as 2e9."
        )
    return float(written)


def written_layers(layers: Iterable[Layer]) -> list[dict[str, Any]]:
    """The inverse of `read_layers`: plain values, for YAML and JSON."""
    return [
        {
            "name": layer.name,
            "kind": layer.kind,
            "forward": layer.forward_s,
            "backward": layer.backward_s,
            "output": layer.output_bytes,
            "parameters": layer.parameter_bytes,
            "saved": layer.saved_bytes,
            "width": layer.width,
            "cut": layer.cut,
        }
        for layer in layers
    ]


def scaled(layers: Iterable[Layer], factor: float) -> tuple[Layer, ...]:
    """The layers, each of them `factor` times as long."""
    return tuple(
        replace(layer, forward_s=factor * layer.forward_s, backward_s=factor * layer.backward_s) for layer in layers
    )


def blocks(layers: Sequence[Layer]) -> list[Sequence[Layer]]:
    """Runs of layers within which no stage may begin."""
    begins = [0, *(place for place, layer in enumerate(layers) if place and layer.cut)]
    return [layers[begin:end] for begin, end in zip(begins, [*begins[1:], len(layers)], strict=True)]
