"""What does not work with a model's sparse tables. The engine checks it before it starts, and forms as well."""

from collections.abc import Mapping, Sequence
from typing import Final

from scalebook.training.engine.rules.argument_error import ArgumentError
from scalebook.training.engine.rules.settings import Settings

ROW_OPTIMIZERS: Final = ("SGD", "Adagrad", "SparseAdam")
"""Optimizers of torch whose step changes only the rows of the gradient, each independently."""
SPARSE_ALONE: Final = "SparseAdam"
"""The one of them that steps on nothing but tables."""
_OFF: Final = ("momentum", "weight_decay", "fused", "differentiable", "capturable")
_DENSE: Final = "sparse: false in the model"


def settings_beside_tables(local: str | None, codecs: Mapping[str, str], keeps_squares: bool) -> list[ArgumentError]:
    """All settings that do not work with sparse tables. `local`: the name of the `Local` whose workers step by
    themselves, if any. `codecs`: names of those that encode, by argument. `keeps_squares`: whether the damping does."""
    named = {name: (codec, "fp32") for name, codec in codecs.items()}
    if local is not None:
        named["local"] = (local, "none")
    if keeps_squares:
        named["damping"] = ("adaptive", "adaptive: false")
    return [_beside(key, value, otherwise) for key, (value, otherwise) in named.items()]


def _beside(argument: str, value: str, otherwise: str) -> ArgumentError:
    why = f"is {value}, but sparse tables exist only once in memory, and rows of sparse tables are sent uncompressed"
    return ArgumentError("sparse-tables", argument, why, f"Use {otherwise}, or {_DENSE}.")


def refuse_beside_tables(settings: Settings) -> None:
    """ValueError, with argument and fix, for settings that do not work with tables."""
    local = settings.local
    codecs = {"push_codec": settings.push_codec, "pull_codec": settings.pull_codec}
    for contradiction in settings_beside_tables(
        local.name if local.steps or local.sums else None,
        {key: codec.facts().name for key, codec in codecs.items() if codec.codes},
        settings.keeps_squares,
    ):
        raise contradiction


def writes_by_norm(name: str) -> ValueError:
    """The error for an embedding that writes into its own weights in each forward pass."""
    return ArgumentError(
        "model-not-supported",
        "model",
        f"{name} has max_norm, which writes into weights that all workers share",
        "Set max_norm to None, and normalise the layer's output.",
    )


def unfit_for_rows(name: str, settings: Mapping[str, object]) -> ArgumentError | None:
    """Why torch's optimizer of this name cannot step over single rows of tables, as the parameter server does; None if
    it can."""
    if name not in ROW_OPTIMIZERS:
        return _changes_others(f"is {name}")
    return next((_changes_others(f"has {key} {settings[key]}") for key in _OFF if settings.get(key)), None)


def _changes_others(what: str) -> ArgumentError:
    return _unfit(
        f"{what}, which changes rows that are not in a sparse gradient",
        f"Use torch.optim.SGD with momentum 0 and weight_decay 0, Adagrad or SparseAdam, or {_DENSE}.",
    )


def unfit_for_dense(name: str, dense: Sequence[str], has_tables: bool) -> ArgumentError | None:
    """Why it cannot step on the dense trained parameters with these names; None if it can."""
    if name != SPARSE_ALONE or not dense:
        return None
    fix = "Use Adagrad, or torch.optim.SGD without momentum: both step on sparse and dense gradients."
    if not has_tables:
        fix = "Use torch.optim.Adam, or a model with only sparse tables, such as Ranker with sparse: true."
    return _unfit(f"is {name}, which steps only on sparse gradients, but the gradient of {dense[0]} is dense", fix)


def _unfit(message: str, fix: str) -> ArgumentError:
    return ArgumentError("optimizer-not-supported", "optimizer", message, fix)
