import gzip
import hashlib
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from scalebook.training.data import DataError, TabSeparated
from scalebook.training.errors import ConfigError
from tests.training.data.corpora import sentences, written


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "cache" / "scalebook"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "served").mkdir()
    handler = partial(Quiet, directory=str(tmp_path / "served"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"http://127.0.0.1:{http.server_address[1]}"
        http.shutdown()
        thread.join(timeout=5)


def packed(text: Path, how: str) -> Path:
    path = text.with_suffix(f".{how}")
    if how == "gz":
        path.write_bytes(gzip.compress(text.read_bytes()))
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("_about.txt", "Where it comes from.")
            archive.write(text, "fra.txt")
    return path


@pytest.mark.parametrize("how", ["txt", "gz", "zip"])
def test_a_file_as_it_is_distributed(how: str, tmp_path: Path) -> None:
    text = written(tmp_path)
    data = TabSeparated(str(text if how == "txt" else packed(text, how)), batch_size=6)
    assert data.pairs() == sentences()
    assert TabSeparated(str(data.given.path), reverse=True, lines=3).pairs() == [
        (target, source) for source, target in sentences()[:3]
    ]


def test_broken_lines_are_counted_and_named(tmp_path: Path) -> None:
    path = written(tmp_path, attributed=False)
    whole = path.read_bytes().splitlines(keepends=True)
    whole[1:1] = [b"no tab\n", b"\xff\xfe\tnot UTF-8\n", b"a source\t \n"]
    path.write_bytes(b"\xef\xbb\xbf" + b"".join(whole))
    told = r"fra\.txt: 3 of 63 lines are not a sentence, a tab and its translation and are left out: 2, 3, 4\.$"
    with pytest.warns(UserWarning, match=told):
        assert TabSeparated(str(path)).pairs() == sentences()
    path.write_text("nothing\n" * 9)
    with pytest.raises(DataError, match=r"fra\.txt has no line of a sentence, a tab and its translation among 9\."):
        TabSeparated(str(path)).pairs()


@pytest.mark.parametrize("content", [None, b"\x1f\x8b torn", b"PK\x03\x04 torn"])
def test_a_file_that_cannot_be_read_is_named(content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "fra.txt").write_bytes(content)
    with pytest.raises(DataError, match=r"fra\.txt cannot be read .* Name another in data\.init_args\.file\.$"):
        TabSeparated(str(tmp_path / "fra.txt")).pairs()


def test_an_archive_without_a_text_is_named(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("fra.csv", "a")
    with pytest.raises(DataError, match=r"a\.zip has no file that ends with \.txt or \.tsv\."):
        TabSeparated(str(tmp_path / "a.zip")).pairs()


def test_a_download_is_checked_and_kept(server: str, tmp_path: Path, own_cache: Path) -> None:
    content = packed(written(tmp_path), "zip").read_bytes()
    (tmp_path / "served" / "fra-eng.zip").write_bytes(content)
    sha256 = hashlib.sha256(content).hexdigest()
    wrong = TabSeparated(url=f"{server}/fra-eng.zip", sha256="0" * 64, size=len(content))
    with pytest.raises(DataError, match=r"checksum .* or name a file of your own in data\.init_args\.file\.$"):
        wrong.prepare_data()
    assert not list(own_cache.glob("*fra-eng.zip"))
    data = TabSeparated(url=f"{server}/fra-eng.zip", sha256=sha256, size=len(content), vocabulary=120)
    data.prepare_data()
    assert data.given.path == own_cache / f"{sha256[:16]}-fra-eng.zip"
    assert data.given.path.read_bytes() == content
    assert data.pairs() == sentences()


ADDRESS = {"url": "https://example.org/fra.zip", "sha256": "0" * 64, "size": 10}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, r"^data\.init_args\.file: is empty\. Name a file, or give url, sha256 and size\.$"),
        ({**ADDRESS, "file": "a"}, r"^data\.init_args\.url: is set together with a file"),
        ({**ADDRESS, "url": "file:///etc/passwd"}, r"^data\.init_args\.url: is 'file:///etc/passwd'\. Begin it with"),
        ({**ADDRESS, "sha256": None}, r"^data\.init_args\.sha256: is empty"),
        ({**ADDRESS, "sha256": "abc"}, r"^data\.init_args\.sha256: is not 64 hexadecimal digits"),
        ({**ADDRESS, "size": None}, r"^data\.init_args\.size: is empty"),
    ],
)
def test_nothing_unknown_is_trusted(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        TabSeparated(**given)
