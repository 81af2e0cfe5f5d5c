import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from scalebook.training.data import ClickLog, DataError
from scalebook.training.data.click_log import CATEGORIES, NUMBERS
from scalebook.training.data.ngrams import HASHES
from tests.training.data.logs import written


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "scalebook"


def one(label: str = "1", number: str = "7", word: str = "68fd1e64") -> str:
    return "\t".join([label, *[number] * NUMBERS, *[word] * CATEGORIES])


def test_lines_become_numbers_and_hashes(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("\n".join([one(), one("0", "", ""), one("0", "-1"), one("1", "0")]))
    clicks = ClickLog(str(tmp_path / "log"))._clicks()
    assert clicks.clicked.tolist() == [True, False, False, True]
    np.testing.assert_allclose(clicks.numbers[0], np.log(8), rtol=1e-6)
    assert not clicks.numbers[1:].any()
    assert not clicks.hashes[1].any(), "a missing category has no hash"
    assert len(set(clicks.hashes[0].tolist())) == CATEGORIES, "a value of two columns is two values"
    assert (clicks.hashes[0] == clicks.hashes[2]).all()
    assert clicks.hashes[0].min() > 0
    assert clicks.hashes.max() < HASHES
    assert clicks.numbers.dtype == np.float32
    assert clicks.hashes.dtype == np.int32


def test_the_last_lines_validate(tmp_path: Path) -> None:
    path = written(tmp_path, 50)
    data = ClickLog(str(path), batch_size=16, val_fraction=0.2)
    data.prepare_data()
    data.setup("fit")
    assert [len(clicked) for *_, clicked in data.train_dataloader()] == [16, 16, 8]
    ((numbers, hashes, clicked),) = data.val_dataloader()
    labels = [float(line[0]) for line in path.read_text().splitlines()]
    assert clicked.tolist() == labels[40:]
    assert (numbers.shape, hashes.shape) == ((10, NUMBERS), (10, CATEGORIES))
    assert (numbers.dtype, hashes.dtype, clicked.dtype) == (torch.float32, torch.int64, torch.float32)
    few = ClickLog(str(path), lines=20, limit=5, val_fraction=0.2)
    few.setup("fit")
    assert [len(clicked) for *_, clicked in few.train_dataloader()] == [5]
    ((_, _, clicked),) = few.val_dataloader()
    assert clicked.tolist() == labels[16:20]


def test_it_is_read_once_as_long_as_it_is_the_same(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, 20)
    first = ClickLog(str(path))._clicks()
    monkeypatch.setattr("scalebook.training.data.click_log.read", lambda *_: pytest.fail("read again"))
    for made, again in zip(first, ClickLog(str(path))._clicks(), strict=True):
        np.testing.assert_array_equal(made, again)
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(own_cache.parent))
    path.write_text(path.read_text() + one() + "\n")
    assert len(ClickLog(str(path))._clicks().clicked) == 21


def test_compressed_is_the_same(tmp_path: Path) -> None:
    path = written(tmp_path, 20)
    packed = tmp_path / "train.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    for plain, unpacked in zip(ClickLog(str(path))._clicks(), ClickLog(str(packed))._clicks(), strict=True):
        np.testing.assert_array_equal(plain, unpacked)


def test_broken_lines_are_counted_and_named(tmp_path: Path) -> None:
    path = tmp_path / "log"
    broken = ["", one("2"), one(number="x"), one() + "\tmore", one(number="9" * 400), "nothing"]
    path.write_text("\n".join([one(), *broken, one("0")]))
    with pytest.warns(
        UserWarning, match=r"log: 6 of 8 lines are not a label, 13 .* left out: 2, 3, 4, 5, 6, \.\.\.\.$"
    ):
        assert ClickLog(str(path))._clicks().clicked.tolist() == [True, False]
    path.write_text("nothing")
    with pytest.raises(DataError, match=r"log has no line of a label, 13 integers and 26 categories among 1\."):
        ClickLog(str(path))._clicks()


def test_what_cannot_be_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere cannot be read .* Name another in data\.init_args\.file\.$"):
        ClickLog(str(tmp_path / "nowhere")).setup("fit")
    (tmp_path / "log").write_text(one())
    with pytest.raises(DataError, match="has one line"):
        ClickLog(str(tmp_path / "log")).setup("fit")
