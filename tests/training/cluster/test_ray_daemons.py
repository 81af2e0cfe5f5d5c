"""What of Ray runs, where it listens, and that all of it ends."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.training.cluster.conftest import Place

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    if (tmp_path / "scalebook" / "cluster" / "node.json").exists():
        made.command("stop")


def test_a_head_listens_on_loopback_alone_and_its_token_shows_nowhere(place: Place) -> None:
    """By the kernel's own list of sockets, of all processes that came with it."""
    said = place.command("start", "--port", "0", "--cores", "1")
    node = place.node()
    ours = [process for process in psutil.process_iter() if f"XDG_STATE_HOME={place.home}" in _told(process)]
    listening = {
        (connection.laddr.ip.removeprefix("::ffff:"), connection.laddr.port)
        for process in ours
        for connection in _connections(process)
        if connection.status == psutil.CONN_LISTEN
    }
    assert len(listening) >= 3, "head, raylet, object manager"
    assert {host for host, _ in listening} == {"127.0.0.1"}
    assert node.address in {f"{host}:{port}" for host, port in listening}
    shown = place.command("status")
    later = {line.split()[-1] for line in shown.splitlines() if "listens on" in line}  # an agent of Ray's comes late
    assert later >= {f"{host}:{port}" for host, port in listening}
    assert {one.rpartition(":")[0] for one in later} == {"127.0.0.1"}
    token = place.token.read_text()
    lines = "\n".join(" ".join(_told(process)) for process in ours)
    assert "gcs_server" in lines
    assert token not in lines + said + shown
    logs = [path for path in Path(node.folder).rglob("*") if path.is_file() and not path.is_symlink()]
    assert len(logs) > 5
    assert [
        path
        for path in (*logs, place.home / "scalebook/cluster/ray.log")
        if token in path.read_text("utf-8", "replace")
    ] == []
    assert "is the head at" in place.command("start", code=2)
    assert place.command("stop") == "All Ray processes that were started here have ended.\n"
    assert [process.pid for process in ours if process.is_running() and process.status() != "zombie"] == []
    assert not os.path.exists(node.folder)
    assert "has started no Ray processes here" in place.command("status", code=1)


def _connections(process: psutil.Process) -> list[Any]:
    try:
        return process.net_connections(kind="tcp")
    except psutil.Error:
        return []


def _told(process: psutil.Process) -> list[str]:
    """Its command line. Its environment names the token's file alone."""
    try:
        return [*process.cmdline(), *(f"{key}={value}" for key, value in process.environ().items())]
    except psutil.Error:
        return []


def test_what_cannot_start_leaves_nothing(place: Place) -> None:
    """A port that another one has."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = place.command("start", "--port", str(taken.getsockname()[1]), code=1)
    assert "Ray did not start" in said
    assert not (place.home / "scalebook" / "cluster" / "node.json").exists()
