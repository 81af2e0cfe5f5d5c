"""Embeddings that read their table row by row: the rows that a batch needs are fetched when its input is there."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn import Parameter

from scalebook.training.ps.memory.uncopied import Uncopied
from scalebook.training.ps.optimizer.tables import is_table

Fetch = Callable[[Tensor], Tensor]
"""Rows (int64 [n], different, increasing) of one table: [n, width]."""


class Source(Uncopied):
    """Where an embedding's rows come from; a copy of the embedding reads its own weight."""

    def __init__(self, fetch: Fetch) -> None:
        self.fetch = fetch


class _Rows(torch.autograd.Function):
    """Fetched rows, whose sparse gradient becomes one of the whole table."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, rows: Tensor, fetch: Fetch, pad: bool) -> Tensor:
        """`pad`: with one more row, of zeros."""
        ctx.rows, ctx.shape = rows, weight.shape
        fetched = fetch(rows)
        return torch.cat([fetched, torch.zeros_like(weight[:1])]) if pad else fetched

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        indices = ctx.rows[gradient._indices()[0]][None]
        whole = torch.sparse_coo_tensor(indices, gradient._values(), ctx.shape, check_invariants=False)
        return whole, None, None, None


class _ByRows:
    reads_rows: ClassVar = True
    weight: Tensor
    padding_idx: int | None

    def _fetched(self, source: Source, input: Tensor) -> tuple[Tensor, Tensor, int | None]:
        """The rows that `input` names, where each of it is among them, and where the padding is: behind them if it is
        not there, since torch sums by another kernel, to other last bits, where there is no padding at all."""
        rows, places = torch.unique(input, return_inverse=True)
        padding, pad = None, False
        if self.padding_idx is not None:
            found = (rows == self.padding_idx).nonzero()
            pad = not len(found)
            padding = len(rows) if pad else int(found[0])
        local: Tensor = _Rows.apply(self.weight, rows.long(), source.fetch, pad)  # type: ignore[no-untyped-call]
        return local, places, padding


class EmbeddingByRows(_ByRows, nn.Embedding):
    """What an `nn.Embedding` is while its table is shared."""

    def forward(self, input: Tensor) -> Tensor:
        source = vars(self).get("row_source")
        if source is None:
            return super().forward(input)
        local, places, padding = self._fetched(source, input)
        return F.embedding(places, local, padding, None, self.norm_type, self.scale_grad_by_freq, sparse=True)


class EmbeddingBagByRows(_ByRows, nn.EmbeddingBag):
    """What an `nn.EmbeddingBag` is while its table is shared."""

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        source = vars(self).get("row_source")
        if source is None:
            return super().forward(input, offsets, per_sample_weights)
        local, places, padding = self._fetched(source, input)
        return F.embedding_bag(
            places, local, offsets, None, self.norm_type, self.scale_grad_by_freq, self.mode, True,
            per_sample_weights, self.include_last_offset, padding,
        )  # fmt: skip


class RowReaders:
    """The embeddings of a model that read rows, until `end`. `fetches`: how, by the id of the table's parameter."""

    def __init__(self, model: nn.Module, fetches: Mapping[int, Fetch]) -> None:
        self._modules = [
            module
            for module in model.modules()
            if isinstance(module, nn.Embedding | nn.EmbeddingBag)
            and is_table(module.weight)
            and id(module.weight) in fetches
        ]
        self._kinds = [type(module) for module in self._modules]
        for module in self._modules:
            vars(module)["row_source"] = Source(fetches[id(module.weight)])
            module.__class__ = _by_rows(type(module))

    def end(self) -> None:
        """They are what they were."""
        for module, kind in zip(self._modules, self._kinds, strict=True):
            vars(module).pop("row_source", None)
            module.__class__ = kind
        self._modules, self._kinds = [], []


def _by_rows(kind: type[nn.Module]) -> type[Any]:
    by_rows: type[Any] = EmbeddingByRows if issubclass(kind, nn.Embedding) else EmbeddingBagByRows
    return by_rows if kind in (nn.Embedding, nn.EmbeddingBag) else type(kind.__name__, (by_rows, kind), {})


def fetches_of(parameters: list[Parameter], rows: Callable[[int, Tensor], Tensor]) -> dict[int, Fetch]:
    """`rows(place, rows)` for each table among `parameters`, by its id."""

    def of(place: int) -> Fetch:
        return lambda wanted: rows(place, wanted)

    return {id(parameter): of(place) for place, parameter in enumerate(parameters) if is_table(parameter)}
