"""What docs/how-to gives to be copied for clusters: who is to read it can, and our own commands take it."""

import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from scalebook.app import serve
from scalebook.training.base.workspace import SETTINGS, Workspace
from scalebook.training.cli import cluster, notebook
from tests.docs.blocks import DOCS, blocks

CLUSTER = DOCS / "how-to" / "cluster.md"
PARSED: dict[str, Callable[[list[str]], object]] = {
    "cluster": lambda words: cluster.parser().parse_args(words),
    "notebook": lambda words: notebook.parser().parse_args(words),
    "ui": lambda words: serve.parser().parse_args(words),
}
SBATCH = {"--job-name", "--nodes", "--ntasks-per-node", "--cpus-per-task", "--time"}

RAYS_PARSERS = """
import sys
from ray.scripts.scripts import start
from ray.scripts.symmetric_run import curate_and_validate_ray_start_args, symmetric_run
told = sys.argv[1:]
asked = symmetric_run.make_context("symmetric-run", list(told)).params
print(asked["address"], asked["min_nodes"])
passed_on = curate_and_validate_ray_start_args(told)
for more in (["--head", "--port=6379"], ["--address=10.0.0.1:6379", "--block"]):
    print(start.make_context("start", [*more, *passed_on]).params["num_cpus"])
"""


def ours(text: str) -> list[list[str]]:
    """The words of each command of ours in it, with nothing of a shell's around them."""
    text = re.sub(r"\\\n\s*", "", text)
    found = re.findall(r"\bscalebook ((?:cluster|notebook|ui) [^\n&|;`]*)", text)
    return [shlex.split(one, comments=True) for one in found]


def test_each_of_our_commands_is_one_that_its_parser_takes() -> None:
    commands = [words for block in blocks(CLUSTER) for words in ours(block.text)]
    assert len(commands) == 6
    for name, *words in commands:
        PARSED[name](words)


def test_the_settings_are_settings(tmp_path: Path) -> None:
    (text,) = (block.text for block in blocks(CLUSTER) if block.language == "toml")
    tomllib.loads(text)
    (tmp_path / SETTINGS).write_text(text, encoding="utf-8")
    assert Workspace(tmp_path).settings.cluster.address == "auto"


@pytest.fixture
def script() -> str:
    (found,) = (block.text for block in blocks(CLUSTER) if block.text.startswith("#!/bin/bash"))
    return found


def test_the_script_for_slurm_is_one(script: str) -> None:
    done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, timeout=20, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    lines = script.splitlines()
    assert lines[0] == "#!/bin/bash"
    told = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH ")]
    assert lines[1 : 1 + len(told)] == [f"#SBATCH {one}" for one in told], "sbatch stops looking at the first command"
    options = dict(one.split("=") for one in told)
    assert set(options) == SBATCH
    assert (int(options["--nodes"]), int(options["--ntasks-per-node"])) == (2, 1)
    assert int(options["--cpus-per-task"]) > 0
    assert re.fullmatch(r"\d\d:\d\d:\d\d", options["--time"])


@pytest.mark.cluster
def test_ray_takes_what_it_is_given_there(script: str) -> None:
    """Its own parsers: of symmetric-run, and of the `ray start` that it leads to, on the first node and the others."""
    words = shlex.split(re.sub(r"\\\n\s*", "", script).splitlines()[-1])
    told = words[words.index("symmetric-run") + 1 : words.index("--")]
    told = [{"$SLURM_NNODES": "2", "$RAY_ADDRESS": "10.0.0.1:6379"}.get(word, word) for word in told]
    told = [word.replace("$SLURM_CPUS_PER_TASK", "16") for word in told]
    program = [sys.executable, "-P", "-c", RAYS_PARSERS, *told]
    done = subprocess.run(program, text=True, capture_output=True, timeout=60, check=False)
    assert done.stdout.split() == ["10.0.0.1:6379", "2", "16", "16"], done.stderr


def test_the_cluster_of_kuberay_is_one() -> None:
    described: dict[str, Any] = YAML(typ="safe").load(
        next(block.text for block in blocks(CLUSTER) if block.language == "yaml")
    )
    assert (described["apiVersion"], described["kind"]) == ("ray.io/v1", "RayCluster")
    spec = described["spec"]
    assert spec["authOptions"] == {"mode": "token"}
    assert tuple(map(int, spec["rayVersion"].split("."))) >= (2, 60, 0)
    workers = spec["workerGroupSpecs"]
    assert [group["minReplicas"] == group["replicas"] == group["maxReplicas"] for group in workers] == [True]
    images = set()
    for group in (spec["headGroupSpec"], *workers):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values()), "KubeRay takes words alone"
        (container,) = group["template"]["spec"]["containers"]
        images.add(container["image"])
        assert {one["name"] for one in container["env"]} == {
            "RAY_worker_niceness",
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO",
        }
        assert container["resources"]["limits"]["cpu"] == group["rayStartParams"]["num-cpus"]
    assert len(images) == 1, "all machines need the same Scalebook"
    pod = spec["headGroupSpec"]["template"]["spec"]
    assert {one["name"] for one in pod["containers"][0]["volumeMounts"]} == {one["name"] for one in pod["volumes"]}
