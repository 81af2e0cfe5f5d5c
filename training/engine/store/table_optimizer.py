"""Sparse tables: parameters whose gradients hold only the rows of a batch, and how an optimizer steps on rows.

A table is the weight of an `nn.Embedding` or `nn.EmbeddingBag` with `sparse=True`. The parameter is marked, so that
workers and servers plan alike.
"""

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from scalebook.training.engine.rules.argument_error import ArgumentError
from scalebook.training.engine.rules.table_conflicts import unfit_for_rows, writes_by_norm

_MARK: Final = "_scalebook_table"
FEW_ROWS: Final = 2
"""Rows of the small table on which an optimizer is tried."""


def mark_tables(model: nn.Module) -> None:
    """Mark the model's tables, before the optimizers are planned. ValueError for one that cannot be shared."""
    for name, module in model.named_modules():
        if not isinstance(module, nn.Embedding | nn.EmbeddingBag) or not module.sparse:
            continue
        kind = nn.Embedding if isinstance(module, nn.Embedding) else nn.EmbeddingBag
        if type(module).forward is not kind.forward and not hasattr(type(module), "reads_rows"):
            raise ArgumentError(
                "model-not-supported",
                "model",
                f"{name} is a {type(module).__name__}, which overrides forward, so it is unknown which rows it reads",
                f"Use {kind.__name__} without overriding forward, or set sparse=False.",
            )
        if module.max_norm is not None:
            raise writes_by_norm(name)
        setattr(module.weight, _MARK, True)


def is_table(parameter: Tensor) -> bool:
    """Whether `mark_tables` has marked it."""
    return bool(getattr(parameter, _MARK, False))


def mark_table(parameter: Tensor) -> None:
    """Mark a parameter that stands for a table."""
    setattr(parameter, _MARK, True)


def refuse_optimizer(optimizer: Optimizer) -> None:
    """ValueError, with the remedy, for an optimizer that does not step row by row over its tables."""
    kind = type(optimizer)
    is_torchs = kind.__module__.startswith("torch.optim.")
    name = kind.__name__ if is_torchs else f"{kind.__module__}.{kind.__qualname__}"
    for group in optimizer.param_groups:
        if not any(map(is_table, group["params"])):
            continue
        if unfit := unfit_for_rows(name, group):
            raise unfit
        if any(parameter.is_cuda for parameter in group["params"]):
            raise ArgumentError(
                "model-not-supported",
                "model",
                "tables with sparse gradients are shared only on the CPU",
                "Set sparse=False on a GPU.",
            )


def rows_of(indices: Tensor, values: Tensor, rows: int) -> Tensor:
    """A sparse gradient [rows, ...] of these different, increasing rows: int64 [n] and [n, ...]."""
    size = (rows, *values.shape[1:])
    return torch.sparse_coo_tensor(indices[None], values, size, is_coalesced=True, check_invariants=False)


def compact(values: Tensor) -> Tensor:
    """A sparse gradient of a small table that has all of its rows: [n, ...] like `values`."""
    return rows_of(torch.arange(len(values)), values, len(values))


def trial(parameter: Tensor) -> Tensor:
    """A copy on the CPU to try an optimizer on; a table is cut to a few rows."""
    part = parameter.detach()[:FEW_ROWS] if is_table(parameter) else parameter.detach()
    return part.to("cpu", copy=True)


def trial_gradient(parameter: Tensor, values: Tensor) -> Tensor:
    """`values` as a gradient of the kind that `parameter` gets."""
    return compact(values) if is_table(parameter) else values


def state_for(old: Tensor, new: Tensor, state: dict[str, Any]) -> dict[str, Any]:
    """An optimizer's state of the table `old`, for one with fewer rows or for another view of it.

    Row-wise state is cut, or shares its memory: tables are large.
    """
    return {
        name: (value[: len(new)].clone() if len(new) < len(old) else value) if is_row_state(value, old) else value
        for name, value in state.items()
    }


def is_row_state(value: object, table: Tensor) -> bool:
    """Whether an optimizer's value for a table has a row for each of its rows."""
    return isinstance(value, Tensor) and value.shape == table.shape


def dense_parts(gradients: Sequence[Tensor | None]) -> list[Tensor]:
    """The values of the gradients that are not None, without a copy; of a sparse one those of its rows."""
    return [g._values() if g.is_sparse else g for g in gradients if g is not None]
