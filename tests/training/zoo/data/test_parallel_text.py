from pathlib import Path

import pytest
import torch

from scalebook.training.zoo.data import DataError, ParallelText
from scalebook.training.zoo.data.parallel_text import Pair
from scalebook.training.zoo.data.subwords import END, PADDING, START, UNKNOWN
from tests.training.zoo.data.corpora import sentences


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


class Sentences(ParallelText):
    """What it is given."""

    def __init__(
        self,
        given: list[Pair] | None = None,
        batch_size: int = 8,
        limit: int | None = None,
        val_limit: int | None = None,
        split_seed: int = 0,
        longest: int = 48,
    ) -> None:
        super().__init__(batch_size, limit, 0.2, val_limit, split_seed, 120, longest)
        self.given = [Pair(*both) for both in sentences()] if given is None else given

    def pairs(self) -> list[Pair]:
        return self.given


def test_what_is_said_alike_is_in_one_part_only() -> None:
    doubled = [Pair(*both) for both in sentences()]
    doubled += [Pair(pair.source.upper().rstrip(".?") + " …", pair.target) for pair in doubled]
    data = Sentences(doubled)
    train, validation = data.split(doubled)
    assert (len(train), len(validation)) == (96, 24)

    def said(part: list[Pair]) -> set[str]:
        return {pair.source.lower().rstrip(".? …") for pair in part}

    assert not said(train) & said(validation)
    assert data.split(doubled) == (train, validation)
    assert Sentences(split_seed=1).split(doubled)[1] != validation
    assert Sentences(limit=5, val_limit=3).split(doubled) == (train[:5], validation[:3])


def test_batches_end_and_are_filled_up() -> None:
    data = Sentences()
    data.prepare_data()
    data.setup("fit")
    batches = list(data.train_dataloader())
    assert [len(source) for source, _ in batches] == [8] * 6
    train, validation = data.split(data.given)
    texts = {data.subwords.decode(source)[row] for source, _ in batches for row in range(len(source))}
    assert texts == {pair.source for pair in train}
    for source, target in batches:
        assert source.dtype == target.dtype == torch.int64
        assert (target[:, 0] == START).all()
        assert ((source == END).sum(1) == 1).all()
        assert ((target == END).sum(1) == 1).all()
        assert (source[:, -1] != PADDING).any()
        after = (source == END).cumsum(1) - (source == END).int()
        assert ((source == PADDING) == after.bool()).all()
    ((source, target),) = data.val_dataloader()
    assert data.subwords.decode(source) == [pair.source for pair in validation]
    assert data.subwords.decode(target) == [pair.target for pair in validation]


def test_subwords_are_of_the_training_part_alone() -> None:
    given = [Pair(f"{source} {chr(0x4E00 + place)}", target) for place, (source, target) in enumerate(sentences())]
    data = Sentences(given)
    data.setup("fit")
    for part, known in zip(data.split(given), (True, False), strict=True):
        for pair in part:
            assert (UNKNOWN in data.subwords.encode([pair.source])[0]) is not known


def test_long_sentences_are_left_out() -> None:
    long = Pair("river " * 60, "fleuve " * 60)
    data = Sentences([*(Pair(*both) for both in sentences()), long])
    data.setup("fit")
    assert sum(len(part) for part in data._parts.values()) == 60
    with pytest.raises(DataError, match=r"Raise data\.init_args\.longest\.$"):
        Sentences(longest=1).setup("fit")


def test_one_sentence_is_too_few() -> None:
    with pytest.raises(DataError, match="Sentences needs at least 2 different sentences, but has 1"):
        Sentences([Pair("One.", "Un."), Pair("one", "une")]).setup("fit")
