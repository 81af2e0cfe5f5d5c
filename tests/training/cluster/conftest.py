"""Ray's real daemons: two raylets of one cluster, each a machine of its own as far as anybody can tell."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from scalebook.training.base.processes import ProcessId
from scalebook.training.base.safe_path import environment
from scalebook.training.cluster.ray_daemons import Node

NO_RAY = "the extra `cluster` (Ray) is not installed: make cluster"
HOSTS = ("127.0.0.2", "127.0.0.3")
STARTS_S = 120.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if importlib.util.find_spec("ray") is None:
        for item in items:
            if item.get_closest_marker("cluster"):
                item.add_marker(pytest.mark.skip(reason=NO_RAY))


@dataclass(frozen=True)
class Place:
    """A machine of the tests' cluster: a folder in which this user keeps what they keep on it."""

    home: Path

    def command(self, *words: str, code: int = 0) -> str:
        """What `scalebook cluster WORDS` says there, when it ends with this exit code."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", "scalebook", "cluster", *words], env=self.environment(), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=STARTS_S, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout
        return done.stdout

    def environment(self) -> dict[str, str]:
        return environment(XDG_STATE_HOME=str(self.home))

    @property
    def token(self) -> Path:
        return self.home / "scalebook" / "cluster" / "token"

    def node(self) -> Node:
        content = json.loads((self.home / "scalebook" / "cluster" / "node.json").read_bytes())
        del content["version"]
        return Node(**{**content, "process": ProcessId(**content["process"])})


@dataclass(frozen=True)
class Cluster:
    """`a` is the head and the machine of the workspace, `b` the other one."""

    a: Place
    b: Place
    address: str


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    a, b = (Place(tmp_path_factory.mktemp(name)) for name in "ab")
    try:
        a.command("start", "--host", HOSTS[0], "--port", "0", "--name", "a", "--cores", "2")
        address = a.node().address
        b.command(
            "start", "--join", address, "--host", HOSTS[1], "--name", "b", "--cores", "2", "--token", str(a.token)
        )
        yield Cluster(a, b, address)
    finally:
        for place in (b, a):
            if (place.home / "scalebook").exists():
                place.command("stop", code=0 if (place.home / "scalebook" / "cluster" / "node.json").exists() else 1)
