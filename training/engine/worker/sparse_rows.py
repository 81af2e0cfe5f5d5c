"""Embeddings that read their table row by row: the rows that a batch needs are fetched when its input is there.

If no update has changed the table since the version held, they are read in place, without a copy.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn import Parameter

from scalebook.training.engine.memory.uncopied import Uncopied
from scalebook.training.engine.store.table_optimizer import is_table

Fetch = Callable[[Tensor], Tensor]
"""Rows (int64 [n], different, increasing) of one table: [n, width]."""


class LocalTables(Protocol):
    """Whether tables may be read in place."""

    def unchanged(self, place: int) -> int | None:
        """A number that stays the same as long as the table in place is that of the version held; None if it is not."""

    def count(self, place: int, rows: int) -> None:
        """Count so many different rows as read."""


class RowSource(Uncopied):
    """Where an embedding's rows come from; a copy of the embedding reads its own weight. `lying`: how to read in place;
    None if rows are always fetched."""

    def __init__(self, place: int, rows: Callable[[int, Tensor], Tensor], lying: LocalTables | None) -> None:
        self._place, self._rows, self._lying = place, rows, lying

    def fetch(self, rows: Tensor) -> Tensor:
        """These rows, different and increasing."""
        return self._rows(self._place, rows)

    def read(self, forward: Callable[..., Tensor], input: Tensor, *others: Tensor | None) -> Tensor | None:
        """The result of `forward` on the table in place; None if others have written there since the version held, or
        do so meanwhile."""
        if self._lying is None or (unchanged := self._lying.unchanged(self._place)) is None:
            return None
        made = forward(input, *others)
        if self._lying.unchanged(self._place) != unchanged:
            return None
        self._lying.count(self._place, different(input))
        return made


class _Rows(torch.autograd.Function):
    """Fetched rows, whose sparse gradient becomes one of the whole table."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, rows: Tensor, fetch: Fetch, pad: bool) -> Tensor:
        """`pad`: with one more row, of zeros."""
        ctx.rows, ctx.shape = rows, weight.shape
        fetched = fetch(rows)
        return torch.cat([fetched, fetched.new_zeros((1, *fetched.shape[1:]))]) if pad else fetched

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        indices = ctx.rows[gradient._indices()[0]][None]
        whole = torch.sparse_coo_tensor(indices, gradient._values(), ctx.shape, check_invariants=False)
        return whole, None, None, None


class _ByRows:
    reads_rows: ClassVar = True
    weight: Tensor
    padding_idx: int | None

    def _fetched(self, source: RowSource, input: Tensor) -> tuple[Tensor, Tensor, int | None]:
        """The rows that `input` names, the index of each input in them, and the index of the padding. That is after the
        rows if it does not occur, since torch sums by another kernel, with other last bits, if there is no padding at
        all."""
        rows, places = torch.unique(input, return_inverse=True)
        padding, pad = None, False
        if self.padding_idx is not None:
            hits = (rows == self.padding_idx).nonzero()
            pad = not len(hits)
            padding = len(rows) if pad else int(hits[0])
        local: Tensor = _Rows.apply(self.weight, rows.long(), source.fetch, pad)  # type: ignore[no-untyped-call]
        return local, places, padding


class EmbeddingByRows(_ByRows, nn.Embedding):
    """An `nn.Embedding` while its table is shared."""

    def forward(self, input: Tensor) -> Tensor:
        source: RowSource | None = vars(self).get("row_source")
        if source is None:
            return super().forward(input)
        if (made := source.read(super().forward, input)) is not None:
            return made
        local, places, padding = self._fetched(source, input)
        return F.embedding(places, local, padding, None, self.norm_type, self.scale_grad_by_freq, sparse=True)


class EmbeddingBagByRows(_ByRows, nn.EmbeddingBag):
    """An `nn.EmbeddingBag` while its table is shared."""

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        source: RowSource | None = vars(self).get("row_source")
        if source is None:
            return super().forward(input, offsets, per_sample_weights)
        if (made := source.read(super().forward, input, offsets, per_sample_weights)) is not None:
            return made
        local, places, padding = self._fetched(source, input)
        return F.embedding_bag(
            places, local, offsets, None, self.norm_type, self.scale_grad_by_freq, self.mode, True,
            per_sample_weights, self.include_last_offset, padding,
        )  # fmt: skip


class RowReaders:
    """Makes a model's sparse embeddings read rows, until `restore_modules`. `sources`: by the id of the table's
    parameter."""

    def __init__(self, model: nn.Module, sources: Mapping[int, RowSource]) -> None:
        self._modules = [
            module
            for module in model.modules()
            if isinstance(module, nn.Embedding | nn.EmbeddingBag)
            and is_table(module.weight)
            and id(module.weight) in sources
        ]
        self._kinds = [type(module) for module in self._modules]
        for module in self._modules:
            vars(module)["row_source"] = sources[id(module.weight)]
            module.__class__ = _by_rows(type(module))

    def restore_modules(self) -> None:
        """Restore the modules."""
        for module, kind in zip(self._modules, self._kinds, strict=True):
            vars(module).pop("row_source", None)
            module.__class__ = kind
        self._modules, self._kinds = [], []


def _by_rows(kind: type[nn.Module]) -> type[Any]:
    by_rows: type[Any] = EmbeddingByRows if issubclass(kind, nn.Embedding) else EmbeddingBagByRows
    return by_rows if kind in (nn.Embedding, nn.EmbeddingBag) else type(kind.__name__, (by_rows, kind), {})


def sources_of(
    parameters: list[Parameter], rows: Callable[[int, Tensor], Tensor], lying: LocalTables | None = None
) -> dict[int, RowSource]:
    """The `RowSource` of each table among `parameters`, by its id; it calls `rows(place, rows)`."""
    return {id(p): RowSource(place, rows, lying) for place, p in enumerate(parameters) if is_table(p)}


def different(numbers: Tensor) -> int:
    """How many different values there are (integers); takes a sixth of the time of `torch.unique`."""
    ordered = np.sort(numbers.detach().numpy(), axis=None)
    return int(np.count_nonzero(ordered[1:] != ordered[:-1])) + bool(len(ordered))
