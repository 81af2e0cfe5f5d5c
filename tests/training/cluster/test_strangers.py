"""Who has another token, or none: can neither join the cluster nor call anything in it, and is told so."""

import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from scalebook.training.base.safe_path import environment
from tests.training.cluster.conftest import Cluster, Place

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
CALLS = """
import sys
import ray
ray.init(address=sys.argv[1], namespace="scalebook", log_to_driver=False, _node_ip_address=sys.argv[2])
print("nodes", len(ray.nodes()))
print("ran", ray.get(ray.remote(lambda: 1).remote(), timeout=30))
"""


def test_another_token_and_none_join_nothing(cluster: Cluster, tmp_path: Path) -> None:
    stranger, token = Place(tmp_path), tmp_path / "word"
    said = stranger.command("start", "--join", cluster.address, "--host", "127.0.0.9", code=2)
    assert "token: is missing, and no node can join without it" in " ".join(said.split())
    token.write_text(secrets.token_hex(32))
    said = stranger.command("start", "--join", cluster.address, "--host", "127.0.0.9", "--token", str(token), code=2)
    assert "--token: is not the head's token, so the head rejects it" in " ".join(said.split())
    assert cluster.a.token.read_text() not in said
    assert token.read_text() not in said
    assert not (tmp_path / "scalebook" / "cluster" / "node.json").exists()


@pytest.mark.parametrize("has", ["another", "none"])
def test_another_token_and_none_call_nothing(cluster: Cluster, has: str) -> None:
    told = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)} if has == "another" else {}
    done = subprocess.run(
        [sys.executable, "-P", "-c", CALLS, cluster.address, "127.0.0.2"], text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, timeout=150, check=False, env=environment(RAY_USAGE_STATS_ENABLED="0", **told),
    )  # fmt: skip
    assert done.returncode != 0
    assert "nodes" not in done.stdout.splitlines()
    assert "ran 1" not in done.stdout
    assert "Authentication token is missing or incorrect" in done.stdout
