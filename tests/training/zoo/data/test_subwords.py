import copy
import pickle
from pathlib import Path

import pytest
import torch

from scalebook.training.base.errors import ConfigError
from scalebook.training.zoo.data.subwords import END, PADDING, START, Subwords, learned, subwords
from tests.training.zoo.data.corpora import sentences

TEXTS = [text for both in sentences() for text in both]


def test_texts_and_back() -> None:
    found = learned(TEXTS, 120)
    assert len(found) == 120
    encoded = found.encode(TEXTS)
    assert min(map(min, encoded)) > END
    longest = max(map(len, encoded))
    rows = [[START, *row, END, *[7] * (longest - len(row))] for row in encoded]
    assert found.decode(torch.tensor(rows)) == TEXTS
    assert found.decode(torch.tensor([[START, PADDING], [END, 9]])) == ["", ""]


def test_more_are_asked_than_there_are() -> None:
    assert 30 < len(learned(TEXTS, 50_000)) < 1_000


def test_copies_are_the_same() -> None:
    found = learned(TEXTS, 120)
    for other in (copy.deepcopy(found), pickle.loads(pickle.dumps(found)), learned(TEXTS, 120)):  # noqa: S301 - ours
        assert other.model == found.model
        assert other.encode(TEXTS) == found.encode(TEXTS)


def test_fewer_than_letters_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"^data\.init_args\.vocabulary: 10 subwords cannot be learned from 120 texts"
    ):
        learned(TEXTS, 10)


def test_they_are_kept_by_what_they_are_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = subwords(TEXTS, 120, tmp_path)
    (kept,) = tmp_path.iterdir()
    monkeypatch.setattr("scalebook.training.zoo.data.subwords.learned", lambda *_: Subwords(b"never"))
    assert subwords(TEXTS, 120, tmp_path).model == first.model
    monkeypatch.undo()
    assert subwords(TEXTS[1:], 120, tmp_path).model != first.model
    subwords(TEXTS, 100, tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    kept.write_bytes(b"PK\x03\x04 torn")
    assert subwords(TEXTS, 120, tmp_path).model == first.model
