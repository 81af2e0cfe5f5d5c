"""The docstrings of Python's standard library as queries and documents: real text that every machine has."""

from typing import Final

import numpy as np
from jsonargparse.typing import NonNegativeInt, OpenUnitInterval, PositiveInt
from torch import Tensor
from torch.utils.data import Dataset
from typing_extensions import override

from scalebook.training.zoo.data.cache import cache_folder
from scalebook.training.zoo.data.module import held_out
from scalebook.training.zoo.data.ngrams import Bags
from scalebook.training.zoo.data.standard_library import Corpus, corpus
from scalebook.training.zoo.data.whole import ValidatedAtOnce

RankingBatch = tuple[Tensor, Tensor]
"""queries int64 [batch, n-grams], and the document that belongs to each, int64 [batch, n-grams]: hashes, padded."""
QUERY_NGRAMS: Final = 128


class Docstrings(ValidatedAtOnce[RankingBatch]):
    """Find the function that a sentence describes: about 6,000 functions and classes of Python's standard library.

    The query is the first line of a docstring; the document is the object's name and its body without the docstring,
    both as bags of hashed n-grams. Each module is used either for training or for validation, so no file is in both
    parts. The library belongs to the Python version in use, so results differ a little between Python versions.

    Args:
        batch_size: Pairs per batch of one worker; the other documents of the batch are the wrong answers.
        limit: Train on only this many pairs, taken from the start. Default: all.
        val_fraction: Share of the modules held out for validation.
        split_seed: Seed of the split of modules, independent of the run's seed.
        document_ngrams: Number of n-grams to keep from the start of each document.
    """

    def __init__(
        self,
        batch_size: PositiveInt = 32,
        limit: PositiveInt | None = None,
        val_fraction: OpenUnitInterval = 0.2,
        split_seed: NonNegativeInt = 0,
        document_ngrams: PositiveInt = 256,
    ) -> None:
        super().__init__(batch_size)
        self.limit, self.document_ngrams = limit, document_ngrams
        self.val_fraction, self.split_seed = val_fraction, split_seed

    @override
    def prepare_data(self) -> None:
        """Read the library's source, once for each version of Python: some seconds."""
        corpus(cache_folder())

    @override
    def setup(self, stage: str) -> None:
        if not self._parts:
            whole = corpus(cache_folder())
            train, validation = self.split(whole)
            self._parts = {"train": self._pairs(whole, train), "val": self._pairs(whole, validation)}

    def split(self, whole: Corpus) -> tuple[list[int], list[int]]:
        """The indices of the training pairs and of the validation pairs, each in the library's order."""
        validated = held_out(whole.file, self.val_fraction, self.split_seed)
        return np.flatnonzero(~validated)[: self.limit].tolist(), np.flatnonzero(validated).tolist()

    def _pairs(self, whole: Corpus, places: list[int]) -> "RankingPairs":
        queries = whole.queries.part(places, QUERY_NGRAMS)
        return RankingPairs(queries, whole.documents.part(places, self.document_ngrams))


class RankingPairs(Dataset[RankingBatch]):
    """Queries and documents in memory. `__getitems__` draws a whole batch."""

    def __init__(self, queries: Bags, documents: Bags) -> None:
        self.queries, self.documents = queries, documents

    def __len__(self) -> int:
        return len(self.queries.ends)

    def __getitem__(self, index: int) -> RankingBatch:
        query, document = self.__getitems__([index])
        return query[0], document[0]

    def __getitems__(self, indices: list[int]) -> RankingBatch:
        return self.queries.rows(indices), self.documents.rows(indices)
