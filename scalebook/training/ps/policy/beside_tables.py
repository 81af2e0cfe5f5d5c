"""What does not go with a model's sparse tables: asked by the engine before it starts, and by forms."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from scalebook.training.ps.policy.contradictions import Contradiction
from scalebook.training.ps.policy.settings import Settings

ROW_OPTIMIZERS: Final = ("SGD", "Adagrad", "SparseAdam")
"""Of torch's, those whose step changes the rows of the gradient alone, and each by itself."""
SPARSE_ALONE: Final = "SparseAdam"
"""That of them which steps on nothing but tables."""
_OFF: Final = ("momentum", "weight_decay", "fused", "differentiable", "capturable")
_DENSE: Final = "sparse: false in the model"


class Unfit(NamedTuple):
    """Why an optimizer does not go with a model; `message` goes on from the key `optimizer`."""

    message: str
    remedy: str


def settings_beside_tables(local: str | None, codecs: Mapping[str, str], keeps_squares: bool) -> list[Contradiction]:
    """All that sparse tables forbid. `local`: the name of what has workers step by themselves, if any; `codecs`: names
    of those that code, by argument; `keeps_squares`: whether the damping does."""
    found = []
    if local is not None:
        why = f"is {local}, and each worker would need a copy of the model's sparse tables"
        found.append(Contradiction("local", why, f"Write none, or {_DENSE}."))
    for name, codec in codecs.items():
        why = f"is {codec}, and rows of the model's sparse tables travel as they are"
        found.append(Contradiction(name, why, f"Write fp32, or {_DENSE}."))
    if keeps_squares:
        why = "would keep squares of all rows of the model's sparse tables"
        found.append(Contradiction("damping", why, f"Write adaptive: false there, or {_DENSE}."))
    return found


def refuse_beside_tables(settings: Settings) -> None:
    """ValueError, with key and remedy, for what does not go with tables."""
    local = settings.local
    codecs = {"push_codec": settings.push_codec, "pull_codec": settings.pull_codec}
    for contradiction in settings_beside_tables(
        local.name if local.steps or local.sums else None,
        {key: codec.facts().name for key, codec in codecs.items() if codec.codes},
        settings.keeps_squares,
    ):
        raise contradiction.error()


def unfit_for_rows(name: str, settings: Mapping[str, object]) -> Unfit | None:
    """Why torch's optimizer of this name does not step row by row over tables, as a parameter server has it."""
    if name not in ROW_OPTIMIZERS:
        return Unfit(
            f"is {name}, which cannot step on single rows, and the model has a table with sparse gradients",
            f"Use torch.optim.SGD without momentum, Adagrad or SparseAdam, or {_DENSE}.",
        )
    for key in _OFF:
        if settings.get(key):
            return Unfit(
                f"has {key} {settings[key]}, which would change rows that a sparse gradient has not",
                f"Set it to 0, or {_DENSE}.",
            )
    return None


def unfit_for_dense(name: str, dense: Sequence[str], has_tables: bool) -> Unfit | None:
    """Why it does not step on the trained parameters that are `dense`, by name."""
    if name != SPARSE_ALONE or not dense:
        return None
    remedy = "Use torch.optim.SGD without momentum or Adagrad, which step on both."
    if not has_tables:
        remedy = "Use torch.optim.Adam, or a model with sparse tables alone, such as Ranker with sparse: true."
    return Unfit(f"is {name}, which steps on sparse gradients alone, and {dense[0]} has a dense one", remedy)
