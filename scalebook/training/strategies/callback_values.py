"""What callbacks have learned in a worker: brought to those that the person has, in the process that asked."""

import pickle
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import Enum
from pathlib import PurePath
from typing import Any, Final

import numpy as np
from torch import Tensor
from torch.utils._pytree import tree_leaves

from scalebook.training.strategies.lightning import Callback, PassThroughProfiler, Trainer, move_data_to_device

Values = dict[tuple[str, int], dict[str, Any]]
"""By callback: a class and a number, or "" and the place among the Trainer's callbacks of before the fork."""
_PLAIN: Final = (
    bool, int, float, complex, str, bytes, PurePath, datetime, timedelta, Enum, Tensor, np.ndarray, np.generic,
    set, frozenset, type(None),
)  # fmt: skip


def callback_values(trainer: Trainer, before: Sequence[Callback]) -> Values:
    """In worker 0 after its work: of each callback the attributes that are plain data, tensors on the CPU.

    Paths, scores and counts of checkpoints and early stopping are among them, and lists that a callback of the user's
    has kept. No code of the callback is called, and what is no plain data (a Trainer, a logger, a lock) stays behind.
    """
    return {key: _plain_attributes(callback) for key, callback in _by_key(trainer, before).items()}


def give_callback_values(trainer: Trainer, before: Sequence[Callback], values: Values) -> None:
    """Set them here; on the callbacks that the model's `configure_callbacks` returns too, which are made as there."""
    if any(kind and not kind.startswith("scalebook.") for kind, _ in values):
        profiler, trainer.profiler = trainer.profiler, PassThroughProfiler()  # type: ignore[attr-defined]  # untyped
        try:  # a profiler would begin here, where nothing is trained
            trainer._callback_connector._attach_model_callbacks()
        finally:
            trainer.profiler = profiler  # type: ignore[attr-defined]
    for key, callback in _by_key(trainer, before).items():
        vars(callback).update(values.get(key, {}))


def _by_key(trainer: Trainer, before: Sequence[Callback]) -> dict[tuple[str, int], Callback]:
    places = {id(callback): place for place, callback in enumerate(before)}
    seen: Counter[str] = Counter()
    keyed = {}
    for callback in trainer.callbacks:  # type: ignore[attr-defined]  # made by Lightning's callback connector
        kind = "" if id(callback) in places else f"{type(callback).__module__}.{type(callback).__qualname__}"
        keyed[kind, places.get(id(callback), seen[kind])] = callback
        seen[kind] += 1
    return keyed


def _plain_attributes(callback: Callback) -> dict[str, Any]:
    plain = {name: value for name, value in vars(callback).items() if _is_plain(value)}
    return {name: move_data_to_device(value, "cpu") for name, value in plain.items()}


def _is_plain(value: Any) -> bool:
    if not all(isinstance(leaf, _PLAIN) for leaf in tree_leaves(value)):
        return False
    try:
        pickle.dumps(value)
    except (pickle.PicklingError, TypeError, AttributeError):  # a dict's key, or a factory: it stays in the worker
        return False
    return True
