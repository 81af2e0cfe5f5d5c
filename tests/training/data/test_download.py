import hashlib
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from scalebook.training.data import DataError
from scalebook.training.data.download import RemoteFile, cache_folder, fetch

CONTENT = bytes(range(256)) * 4096  # 1 MiB
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """Serves CONTENT as `/whole`, and what goes wrong under other names."""

    def do_GET(self) -> None:
        if self.path == "/missing":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        if self.path == "/truncated":
            self.wfile.write(CONTENT[:1000])
        elif self.path == "/altered":
            self.wfile.write(CONTENT[:-1] + b"!")
        elif self.path == "/trickle":
            self.trickle()
        elif self.path == "/silent":
            time.sleep(3)
        else:
            self.wfile.write(CONTENT)

    def trickle(self) -> None:
        for _ in range(100):
            try:
                self.wfile.write(b"x")
                self.wfile.flush()
            except OSError:
                return
            time.sleep(0.05)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"http://127.0.0.1:{http.server_address[1]}"
        http.shutdown()
        thread.join(timeout=5)


def remote(*urls: str) -> RemoteFile:
    return RemoteFile("file.gz", len(CONTENT), SHA256, urls)


def test_a_file_arrives_whole_in_a_folder_made_for_it(server: str, tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    fetch([remote(f"{server}/whole")], folder)
    assert (folder / "file.gz").read_bytes() == CONTENT
    assert [path.name for path in folder.iterdir()] == ["file.gz"]


def test_a_file_that_is_there_is_not_fetched_again(tmp_path: Path) -> None:
    (tmp_path / "file.gz").write_bytes(b"mine")
    fetch([remote("http://127.0.0.1:9/nobody")], tmp_path)
    assert (tmp_path / "file.gz").read_bytes() == b"mine"


def test_the_next_address_is_tried_when_one_fails(server: str, tmp_path: Path) -> None:
    fetch([remote(f"{server}/missing", f"{server}/altered", f"{server}/whole")], tmp_path)
    assert (tmp_path / "file.gz").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("missing", "HTTP Error 404"),
        ("truncated", "received 1000 of 1048576 bytes"),
        ("altered", f"checksum [0-9a-f]{{12}}... is not {SHA256[:12]}"),
    ],
)
def test_what_is_not_the_file_leaves_nothing_behind(server: str, tmp_path: Path, path: str, reason: str) -> None:
    with pytest.raises(DataError, match=f"Cannot download file.gz .*{reason}.*Put file.gz in {tmp_path}"):
        fetch([remote(f"{server}/{path}")], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_without_a_network_the_error_says_what_to_put_where(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"refused.*Put file.gz in {tmp_path}, or name the folder .*data_dir"):
        fetch([remote("http://127.0.0.1:9/file.gz")], tmp_path)


def test_waiting_has_an_end(server: str, tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(DataError, match="timed out"):
        fetch([remote(f"{server}/silent")], tmp_path, timeout_s=0.3)
    with pytest.raises(DataError, match="not complete at its deadline"):
        fetch([remote(f"{server}/trickle")], tmp_path, deadline_s=0.3)
    assert time.monotonic() - started < 3
    assert list(tmp_path.iterdir()) == []


def test_the_cache_folder_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "scalebook"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "scalebook"
