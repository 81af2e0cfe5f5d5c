"""The suite for machines with a GPU: it runs there with torch and Lightning alone, and here but for what CUDA does."""

import json
from pathlib import Path

import pytest
import torch

from tests.bare import ROOT, make_bare, run_bare
from tests.gpu.__main__ import ALL

pytestmark = pytest.mark.xdist_group("tests/gpu")
FOLDERS = ("training/ps", "training/strategies", "tests/gpu")
STRANGERS = ("mlflow", "streamlit", "optuna", "plotly", "sklearn", "jsonargparse", "ruamel", "psutil", "pytest")
CUDA_ONLY = {
    "AsyncPS: memory is pinned": "page-locked memory is CUDA's",
    "CUDA used before the fork is told": "only CUDA does not survive a fork",
}


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bare(tmp_path_factory.mktemp("bare"))


def test_strategies_and_suite_need_torch_and_lightning_alone(bare: Path) -> None:
    modules = ["benchmarks.gpu", "scalebook.training.failures"]
    for folder in FOLDERS:
        package = f"scalebook.{folder}" if folder.startswith("training") else folder
        for path in sorted((ROOT / folder).rglob("*.py")):
            below = path.relative_to(ROOT / folder).with_suffix("").as_posix()
            modules.append(f"{package}/{below}".removesuffix("/__init__").replace("/", "."))
    assert len(modules) > 80
    program = (
        "import importlib, importlib.util\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        f"print([name for name in {STRANGERS!r} if importlib.util.find_spec(name)])"
    )
    done = run_bare(bare, "-c", program)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


@pytest.mark.thorough
def test_every_check_that_needs_no_cuda_passes_on_a_cpu(bare: Path, tmp_path: Path) -> None:
    path = tmp_path / "cpu.json"
    done = run_bare(bare, "-m", "tests.gpu", "--device", "cpu", "--no-figures", "--json", str(path))
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(path.read_text())
    assert result["device"].startswith("CPU")
    assert [one["name"] for one in result["checks"]] == [check.name for check in ALL]
    for one in result["checks"]:
        assert one["status"] == ("skipped" if one["name"] in CUDA_ONLY else "passed"), one
        assert one["told"] == CUDA_ONLY.get(one["name"], one["told"])
        assert one["name"] in done.stdout


@pytest.mark.thorough
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU: `python -m tests.gpu`")
def test_without_cuda_every_check_is_skipped_by_name(bare: Path, tmp_path: Path) -> None:
    path = tmp_path / "none.json"
    done = run_bare(bare, "-m", "tests.gpu", "--json", str(path))
    assert done.returncode == 0, done.stdout + done.stderr
    checks = json.loads(path.read_text())["checks"]
    assert {(one["status"], one["told"]) for one in checks} == {
        ("skipped", f"no CUDA here (torch {torch.__version__})")
    }
    assert [one["name"] for one in checks] == [check.name for check in ALL]
