"""CMA-ES whose state lies in the study as numbers. Imports Optuna: only for use inside functions."""

import json
import math
from typing import Any, Final

import cmaes
import numpy as np
from optuna.samplers import CmaEsSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial

ARRAYS: Final = ("_mean", "_p_sigma", "_pc", "_C", "_funhist_values")
"""What a generation changes of the optimizer beside its step size `_sigma` and its number `_g`; all else is made anew
from the space."""


class NumbersCmaEs(CmaEsSampler):
    """Optuna's sampler, which pickles its optimizer into the study and unpickles what it finds there, without either.

    A study is a file or a database that others may write: what is read from it is JSON, and has the right shape or
    counts as missing. Draws are those of Optuna's own sampler. The attributes have a name of their own, so that what
    an older study has pickled is never looked at.
    """

    _found: dict[str, Any] | None = None
    _optimizer: cmaes.CMA | None = None

    @property
    def _attr_key_optimizer(self) -> str:
        return f"{self._attr_prefix}numbers"

    def _restore_optimizer(self, completed_trials: list[FrozenTrial]) -> None:
        """Note the newest state that was kept. Optuna, given None, has `_init_optimizer` make the optimizer."""
        self._found = None
        for trial in reversed(completed_trials):
            kept = {key: of for key, of in trial.system_attrs.items() if key.startswith(self._attr_key_optimizer)}
            if kept:
                self._found = _read(kept, self._attr_key_optimizer)
                return

    def _init_optimizer(self, trans: Any, direction: StudyDirection) -> cmaes.CMA:
        stream = self._cma_rng.rng.get_state()
        made = super()._init_optimizer(trans, direction)
        assert isinstance(made, cmaes.CMA), "the other kinds have more state"
        if self._found is not None and _put(made, self._found):
            self._cma_rng.rng.set_state(stream)  # Optuna draws no seed for an optimizer that it goes on with
        self._optimizer = made
        return made

    def _split_optimizer_str(self, optimizer_str: str) -> dict[str, str]:
        """The optimizer's numbers as Optuna stores them in pieces, in the place of a pickled optimizer."""
        made = self._optimizer
        assert made is not None
        numbers = {name: getattr(made, name).tolist() for name in ARRAYS}
        attributes: dict[str, str] = super()._split_optimizer_str(
            json.dumps({**numbers, "_sigma": float(made._sigma), "_g": made._g})
        )
        return attributes


MENDED: Final = ("_attr_key_optimizer", "_restore_optimizer", "_init_optimizer", "_split_optimizer_str")
assert all(hasattr(CmaEsSampler, name) for name in MENDED), "another Optuna, which would read pickles again"


def _read(kept: dict[str, Any], key: str) -> dict[str, Any] | None:
    """The numbers that were kept in pieces; None for anything else."""
    try:
        numbers = json.loads("".join(kept[f"{key}:{place}"] for place in range(len(kept))))
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    return numbers if isinstance(numbers, dict) else None


def _put(made: cmaes.CMA, numbers: dict[str, Any]) -> bool:
    """Give the optimizer the numbers; False, and it stays as it is, unless each is there in its shape."""
    try:
        arrays = {name: np.array(numbers[name], dtype=float) for name in ARRAYS}
        sigma, generation = float(numbers["_sigma"]), int(numbers["_g"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return False
    if any(array.shape != getattr(made, name).shape for name, array in arrays.items()):
        return False
    measured = [array for name, array in arrays.items() if name != "_funhist_values"]  # that one begins unset
    if not all(np.isfinite(array).all() for array in measured) or not 0 < sigma < math.inf or generation < 0:
        return False
    for name, array in arrays.items():
        setattr(made, name, array)
    made._sigma, made._g = sigma, generation
    return True
