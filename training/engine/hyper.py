"""Hyper-parameters that travel with a push: param groups as JSON, exact to the last bit of every number."""

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from scalebook.training.engine.rules.argument_error import ArgumentError

Groups = Sequence[Mapping[str, Any]]


def encode(groups: Groups) -> bytes:
    """Encode everything but the parameters: numbers, texts, None, dtypes, tensors of one element, and tuples, lists and
    dicts of them. ValueError for anything else."""
    return json.dumps([{k: plain(k, v) for k, v in group.items() if k != "params"} for group in groups]).encode()


class Encoder:
    """`encode`, which runs only if something has changed."""

    def __init__(self) -> None:
        self._last: list[dict[str, Any]] = []
        self._text = b""

    def __call__(self, groups: Groups) -> bytes:
        if len(groups) != len(self._last) or not all(map(_same, groups, self._last)):
            self._text = encode(groups)
            self._last = [{k: copy.copy(v) for k, v in group.items() if k != "params"} for group in groups]
        return self._text


def _same(group: Mapping[str, Any], last: Mapping[str, Any]) -> bool:
    """Whether keys and values are equal; a tensor always counts as changed, since it may change in place."""
    return len(group) == len(last) + 1 and all(
        not isinstance(value, Tensor) and value == group.get(key) for key, value in last.items()
    )


def decode(text: bytes) -> list[dict[str, Any]]:
    """The inverse of `encode`."""
    groups: list[dict[str, Any]] = [{k: value_of(v) for k, v in group.items()} for group in json.loads(text)]
    return groups


def plain(key: str, value: object) -> object:
    """A value as JSON. ArgumentError for what JSON cannot hold."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Tensor) and value.numel() == 1:
        return {"tensor": value.item(), "dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape)}
    if isinstance(value, torch.dtype):
        return {"type": str(value).removeprefix("torch.")}
    if isinstance(value, tuple | list):
        return {"tuple" if isinstance(value, tuple) else "list": [plain(key, item) for item in value]}
    if type(value) is dict:
        return {"dict": [[plain(key, name), plain(key, item)] for name, item in value.items()]}
    raise ArgumentError(
        "optimizer-not-supported",
        "optimizer",
        f"its setting {key!r} is a {type(value).__name__}, which cannot be sent to a server process",
        "Set host: inline and use a rule that applies pushes on arrival, or use another optimizer.",
    )


def value_of(plain: Any) -> Any:
    """The inverse of `plain`."""
    if not isinstance(plain, dict):
        return plain
    if "tensor" in plain:
        return torch.tensor(plain["tensor"], dtype=getattr(torch, plain["dtype"])).reshape(plain["shape"])
    if "type" in plain:
        return getattr(torch, plain["type"])
    if "dict" in plain:
        return {value_of(name): value_of(item) for name, item in plain["dict"]}
    values = [value_of(item) for item in next(iter(plain.values()))]
    return tuple(values) if "tuple" in plain else values
