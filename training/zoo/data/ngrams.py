"""Texts as bags of hashed n-grams: the same numbers in every process, on every machine, in every version."""

import itertools
import re
import zlib
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

PADDING: Final = 0
"""Pads the rows of a batch to the longest; no n-gram has this hash."""
HASHES: Final = 2**31
"""Hashes lie from 1 to HASHES - 1. A model folds them into the rows that its table has."""
_PARTS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


class Bags(NamedTuple):
    """Texts of different lengths, one after the other.

    hashes: int32 [n-grams of all texts]. ends: int64 [texts]; text i is hashes[ends[i - 1] : ends[i]].
    """

    hashes: np.ndarray
    ends: np.ndarray

    def rows(self, texts: Sequence[int]) -> Tensor:
        """These texts as int64 [texts, longest of them], padded with PADDING."""
        unpadded = [self.text(place) for place in texts]
        padded = np.full((len(unpadded), max(map(len, unpadded))), PADDING, np.int64)
        for row, hashes in zip(padded, unpadded, strict=True):
            row[: len(hashes)] = hashes
        return torch.from_numpy(padded)

    def text(self, place: int) -> np.ndarray:
        """The hashes of one text, not copied."""
        return self.hashes[self.ends[place - 1] if place else 0 : self.ends[place]]

    def part(self, places: Sequence[int], most: int) -> "Bags":
        """These texts, the first `most` n-grams of each."""
        return _joined([self.text(place)[:most] for place in places])


def bags(texts: Sequence[str]) -> Bags:
    """The n-grams of each text."""
    return _joined([np.array(ngrams(text), np.int32) for text in texts])


def _joined(rows: list[np.ndarray]) -> Bags:
    return Bags(np.concatenate(rows), np.cumsum([len(row) for row in rows], dtype=np.int64))


def words(text: str) -> list[str]:
    """The lower-case words of a text; names such as `getValue` and `get_value` are two words."""
    return [part.lower() for part in _PARTS.findall(text)]


def ngrams(text: str) -> list[int]:
    """The hashes of the distinct words, pairs of neighbouring words, and letter trigrams within words, in this order.

    A text without a word has one n-gram, the empty one. (Word hashing by letter trigrams: Huang et al. 2013, "Learning
    deep structured semantic models for web search using clickthrough data", section 3.2.)
    """
    parts = words(text)
    grams = dict.fromkeys(parts)
    grams |= dict.fromkeys(f"{first} {second}" for first, second in itertools.pairwise(parts))
    for word in parts:
        marked = f"#{word}#"
        grams |= dict.fromkeys(f"~{marked[start : start + 3]}" for start in range(len(marked) - 2))
    return [1 + zlib.crc32(ngram.encode()) % (HASHES - 1) for ngram in grams or [""]]
