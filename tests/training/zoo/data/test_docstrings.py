"""On a small library, which is like Python's own."""

import sysconfig
from pathlib import Path

import numpy as np
import pytest
import torch

from scalebook.training.zoo.data import DataError, Docstrings
from scalebook.training.zoo.data import standard_library as library
from scalebook.training.zoo.data.ngrams import ngrams

FILE = '''
def wind(clock):
    """Wind the {name}.

    Slowly.
    """
    return clock.key.turn({name!r})

def silent():
    return 1

class Spring:
    """A spring of the {name}."""
    async def release(self):
        "Let it go."
        await self.{name}
'''
NAMES = ("alarm", "bell", "cuckoo", "dial", "escapement")


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "lib"
    (folder / "clocks").mkdir(parents=True)
    for name in NAMES:
        (folder / "clocks" / f"{name}.py").write_text(FILE.format(name=name))
    (folder / "broken.py").write_text("def half(:\n")
    (folder / "latin.py").write_bytes(b"# -*- coding: nothing -*-\n'\xe9'\n")
    (folder / "test").mkdir()
    (folder / "test" / "test_clock.py").write_text(FILE.format(name="tested"))
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def test_a_document_is_name_and_body_without_the_docstring(source: Path) -> None:
    found = list(library.described(source))
    assert [one.module for one in found[::3]] == [f"clocks/{name}" for name in NAMES]
    wind, spring, release = found[:3]
    assert wind == ("clocks/alarm", "Wind the alarm.", "wind", "def wind(clock):\n    return clock.key.turn('alarm')")
    assert (spring.summary, spring.body.split("\n")[0]) == ("A spring of the alarm.", "class Spring:")
    assert (release.name, release.summary) == ("release", "Let it go.")


def test_files_are_in_one_part_only(source: Path) -> None:
    data = Docstrings(val_fraction=0.4)
    data.prepare_data()
    data.setup("fit")
    whole = library.corpus(source.parent / "cache" / "scalebook")
    train, validation = data.split(whole)
    assert (len(train), len(validation)) == (9, 6)
    assert not set(whole.file[train]) & set(whole.file[validation])
    assert data.split(whole) == (train, validation)
    assert Docstrings(val_fraction=0.4, split_seed=1).split(whole) != (train, validation)
    assert len(Docstrings(limit=4).split(whole)[0]) == 4


def test_batches_are_hashes_filled_up(source: Path) -> None:
    data = Docstrings(batch_size=4, val_fraction=0.2, document_ngrams=7)
    data.setup("fit")
    batches = list(data.train_dataloader())
    assert [len(queries) for queries, _ in batches] == [4, 4, 4]
    assert all(documents.shape == (4, 7) for _, documents in batches)
    (queries, documents), *more = data.val_dataloader()
    assert more == []
    assert queries.dtype == torch.int64
    kept = set(queries[0].tolist()) - {0}
    assert any(kept == set(ngrams(f"Wind the {name}.")) for name in NAMES)
    assert documents[2, :2].tolist() == ngrams("release async")[:2]


def test_the_library_is_read_once(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = source.parent / "cache"
    first = library.corpus(cache)
    monkeypatch.setattr(library, "read", lambda folder: pytest.fail("read again"))
    second = library.corpus(cache)
    assert np.array_equal(first.documents.hashes, second.documents.hashes)
    assert np.array_equal(first.queries.ends, second.queries.ends)
    assert [path.suffix for path in cache.iterdir()] == [".npz"]


@pytest.mark.parametrize("content", [b"", b"nothing", b"PK\x03\x04 torn"])
def test_a_broken_file_is_made_again(source: Path, content: bytes) -> None:
    cache = source.parent / "cache"
    library.corpus(cache)
    (kept,) = cache.iterdir()
    kept.write_bytes(content)
    assert len(library.corpus(cache).file) == 15
    assert kept.stat().st_size > len(content)


def test_a_python_without_its_source_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Use a Python installation that includes the source of its standard library"):
        library.read(tmp_path)
