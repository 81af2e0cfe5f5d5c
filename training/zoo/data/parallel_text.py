"""What every data set of translations shares: the split, the subwords, the batches."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset
from typing_extensions import override

from scalebook.training.zoo.data.cache import cache_folder
from scalebook.training.zoo.data.module import DataError, held_out
from scalebook.training.zoo.data.subwords import END, PADDING, START, Subwords, subwords
from scalebook.training.zoo.data.whole import ValidatedAtOnce

TranslationBatch = tuple[Tensor, Tensor]
"""source int64 [batch, subwords], ends with END; target int64 [batch, subwords], from START to END; padded."""


class Pair(NamedTuple):
    """A sentence, and its translation."""

    source: str
    target: str


class ParallelText(ValidatedAtOnce[TranslationBatch], ABC):
    """Sentences and their translations. Those that differ only in case and signs are in one part of the split."""

    needs: ClassVar[tuple[str, ...]] = ("sentencepiece",)

    def __init__(
        self,
        batch_size: int,
        limit: int | None,
        val_fraction: float,
        val_limit: int | None,
        split_seed: int,
        vocabulary: int,
        longest: int,
    ) -> None:
        super().__init__(batch_size)
        self.limit, self.val_limit = limit, val_limit
        self.val_fraction, self.split_seed = val_fraction, split_seed
        self.vocabulary, self.longest = vocabulary, longest
        self._subwords: Subwords | None = None

    @abstractmethod
    def pairs(self) -> list[Pair]:
        """All pairs, always in the same order. DataError if there are none."""

    @property
    def subwords(self) -> Subwords:
        """The subwords of both languages, learned from the training part on first access."""
        if self._subwords is None:
            self._subwords = self._learn(self.split(self.pairs())[0])
        return self._subwords

    @override
    def prepare_data(self) -> None:
        """Learn the subwords, unless those of the same text are cached."""
        self._learn(self.split(self.pairs())[0])

    @override
    def setup(self, stage: str) -> None:
        if not self._parts:
            train, validation = self.split(self.pairs())
            self._subwords = self._learn(train)
            self._parts = {"train": self._encoded(train), "val": self._encoded(validation)}

    def split(self, pairs: Sequence[Pair]) -> tuple[list[Pair], list[Pair]]:
        """The training pairs in the order of the text, and the validation pairs in random order."""
        number: dict[str, int] = {}
        group = np.array([number.setdefault(_said(pair.source), len(number)) for pair in pairs], np.int64)
        if len(number) < 2:
            raise DataError(
                f"{type(self).__name__} needs at least 2 different sentences, but has {len(number)}. Add more."
            )
        validated = held_out(group, self.val_fraction, self.split_seed)
        shuffled = np.random.RandomState(self.split_seed).permutation(np.flatnonzero(validated))
        train = [pairs[place] for place in np.flatnonzero(~validated)[: self.limit]]
        return train, [pairs[place] for place in shuffled[: self.val_limit]]

    def _learn(self, train: Sequence[Pair]) -> Subwords:
        return subwords([text for pair in train for text in pair], self.vocabulary, cache_folder())

    def _encoded(self, pairs: Sequence[Pair]) -> "SentencePairs":
        sources = self.subwords.encode([pair.source for pair in pairs])
        targets = self.subwords.encode([pair.target for pair in pairs])
        short = [both for both in zip(sources, targets, strict=True) if max(map(len, both)) <= self.longest]
        if not short:
            raise DataError(
                f"In one part of {type(self).__name__}, no sentence has at most {self.longest} subwords. Raise "
                "data.init_args.longest."
            )
        return SentencePairs([source for source, _ in short], [target for _, target in short])


class SentencePairs(Dataset[TranslationBatch]):
    """Subwords in memory. `__getitems__` draws a whole batch."""

    def __init__(self, sources: list[list[int]], targets: list[list[int]]) -> None:
        self.sources = [np.array([*row, END], np.int32) for row in sources]
        self.targets = [np.array([START, *row, END], np.int32) for row in targets]

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, index: int) -> TranslationBatch:
        source, target = self.__getitems__([index])
        return source[0], target[0]

    def __getitems__(self, indices: list[int]) -> TranslationBatch:
        return _filled([self.sources[place] for place in indices]), _filled([self.targets[place] for place in indices])


def _filled(rows: list[np.ndarray]) -> Tensor:
    """int64 [rows, longest of them], filled up with PADDING."""
    filled = np.full((len(rows), max(map(len, rows))), PADDING, np.int64)
    for place, row in zip(filled, rows, strict=True):
        place[: len(row)] = row
    return torch.from_numpy(filled)


def _said(text: str) -> str:
    """What makes two texts one to the split: letters and digits, in lower case."""
    return "".join(filter(str.isalnum, text.casefold()))
