"""The suite for machines with a GPU: it runs there with torch and Lightning alone, and here but for what CUDA does."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.requirements import Requirement

from benchmarks import gpu as figures
from docs.generate.gpu_page import PAGE, keep, page, read
from scalebook.training.engine.memory.device import landing
from scalebook.training.engine.store import coded_traffic as carrier
from scalebook.training.engine.store.hosts import InlineHost
from scalebook.training.lightning.processes import cuda_fork
from scalebook.training.lightning.processes.process_watch import descendants
from tests.gpu import POINTS, costs, forks, torn, ways
from tests.gpu.__main__ import ALL, FIGURES, driver_version, figures_check, found, judged, main
from tests.gpu.models import Dyadic, Pictures
from tests.gpu.running import Check, Machine, Outcome, closing, run_check

pytestmark = pytest.mark.long
ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("training/engine", "training/lightning/async_ps", "training/lightning/model_parallel", "tests/gpu")
STRANGERS = ("mlflow", "streamlit", "optuna", "plotly", "sklearn", "jsonargparse", "ruamel", "psutil", "pytest")
CUDA_ONLY = {check.name: check.cuda for check in ALL if check.cuda}
CPU = Machine("cpu", 0, "CPU")
LIMIT_S = 90.0
QUIET = pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning")
"""Of loaders, which are not what is looked at."""
EVERY = [*ALL, figures_check(Path("unused"))]


def make_bare(folder: Path) -> Path:
    """Fill `folder`, to be the only place where packages are found."""
    names, known = ["torch", "lightning"], set[str]()
    while names:
        name = re.sub(r"[-_.]+", "-", names.pop()).lower()
        if name in known:
            continue
        known.add(name)
        found = distribution(name)
        for part in {file.parts[0] for file in found.files or []} - {"..", "__pycache__"}:
            (folder / part).symlink_to(str(found.locate_file(part)))
        needed = [Requirement(line) for line in found.requires or []]
        names += [one.name for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]
    return folder


def run_bare(bare: Path, *arguments: str, timeout_s: float = 100.0) -> subprocess.CompletedProcess[str]:
    """Python with these arguments, in the repository, without any other package."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    environment |= {"PYTHONPATH": f"{bare}{os.pathsep}{ROOT}"}
    return subprocess.run(
        [sys.executable, "-S", *arguments],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bare(tmp_path_factory.mktemp("bare"))


@pytest.mark.thorough
def test_strategies_and_suite_need_torch_and_lightning_alone(bare: Path) -> None:
    modules = ["benchmarks.gpu", "scalebook.training.base.failures"]
    for folder in FOLDERS:
        package = f"scalebook.{folder}" if folder.startswith("training") else folder
        for path in sorted(set((ROOT / folder).rglob("*.py")) - set((ROOT / folder).rglob("test_*.py"))):
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


def test_each_point_has_a_check() -> None:
    assert {check.point for check in EVERY} == {0, *POINTS}
    assert set(POINTS) == set(range(1, 13))
    names = [check.name for check in EVERY]
    assert len(names) == len(set(names))


@pytest.mark.skipif(cuda_fork._has_gpu(), reason="there is a GPU: `python -m tests.gpu`")
def test_without_cuda_each_is_skipped_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "none.json"
    monkeypatch.setattr(sys, "argv", ["tests.gpu", "--json", str(path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    why, printed = f"no CUDA here (torch {torch.__version__})", capsys.readouterr().out
    result = json.loads(path.read_text(encoding="utf-8"))
    assert [one["name"] for one in result["checks"]] == [check.name for check in EVERY]
    assert {(one["status"], one["told"]) for one in result["checks"]} == {("skipped", why)}
    said = printed.partition("Not run:")[2]
    assert [name for name in map(str, (check.name for check in EVERY)) if f"{name}: {why}" not in said] == []
    assert (result["gpus"], "figures" in result) == (0, False)
    assert {"device", "driver", "torch", "date"} <= set(result)


def test_what_needs_more_gpus_is_skipped_by_name() -> None:
    one, eight = Machine("cuda", 1, "NVIDIA H200"), Machine("cuda", 8, "NVIDIA H200")
    lacking = {check.name: check.lacking(one) for check in EVERY if check.lacking(one)}
    assert set(lacking.values()) == {"needs 2 GPUs, here is 1", "needs 8 GPUs, here is 1"}
    assert {name for name, why in lacking.items() if "8" in why} == {"eight GPUs: AsyncPS x 8, DDP x 8"}
    assert not any(check.lacking(eight) for check in EVERY)
    told = closing([Outcome("a", "passed", "", point=1), Outcome("b", "skipped", "needs 2 GPUs, here is 1")])
    assert told == "1 passed, 0 failed, 1 skipped\nNot run:\n    b: needs 2 GPUs, here is 1"


@pytest.mark.thorough
def test_a_warm_start_passes_here(bare: Path, tmp_path: Path) -> None:
    """Closing what was inherited is not for a process of pytest's, which keeps files open."""
    path = tmp_path / "warm.json"
    done = run_bare(bare, "-m", "tests.gpu", "--device", "cpu", "--only", "warm start", "--json", str(path))
    assert done.returncode == 0, done.stdout + done.stderr
    told = {one["name"]: one["told"] for one in json.loads(path.read_text(encoding="utf-8"))["checks"]}
    assert told == {
        "warm start": "0 GPUs, trained to the last bit",
        "warm start: with NVML open": "NVML is of NVIDIA's driver",
    }


@pytest.mark.thorough
@QUIET
@pytest.mark.sampled
@pytest.mark.parametrize("check", [c for c in ALL if c.point and c.point != 3], ids=lambda check: check.name)
def test_each_passes_on_a_cpu(check: Check) -> None:
    outcome = run_check(check, CPU, LIMIT_S)
    assert outcome.status == ("skipped" if check.cuda else "passed"), outcome.told
    assert (outcome.point, outcome.told != "") == (check.point, True)


@pytest.mark.thorough
def test_all_pass_on_a_cpu_with_torch_and_lightning_alone(bare: Path, tmp_path: Path) -> None:
    path = tmp_path / "cpu.json"
    done = run_bare(bare, "-m", "tests.gpu", "--device", "cpu", "--json", str(path), timeout_s=300.0)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(path.read_text(encoding="utf-8"))
    assert result["device"].startswith("CPU")
    assert [one["name"] for one in result["checks"]] == [check.name for check in EVERY]
    for one in result["checks"]:
        assert one["status"] == ("skipped" if one["name"] in CUDA_ONLY else "passed"), one
        assert one["told"] == CUDA_ONLY.get(one["name"], one["told"])
    assert result["figures"]["pushes"]


# --- a wrong value fails ---------------------------------------------------------------------------------------------


def _slow_push(self: InlineHost, push: Any, push_to: Callable[..., Any] = InlineHost.push) -> Any:
    time.sleep(0.1)
    return (yield from push_to(self, push))


def _twice(size: int, device: Any) -> Any:
    memory, registered = landing(2 * size, device)
    return memory[:size], registered


WRONG: dict[str, tuple[Any, str, Any, str]] = {
    "big and torn": (torn, "RATE", 1.0, "inline: "),
    "parent clean: before each fork": (
        "tests.gpu.forks.driver",
        "cuda_has_begun",
        lambda: True,
        "CUDA had begun before the fork",
    ),
    "times: computing is computing": (InlineHost, "push", _slow_push, "computing is 0."),
    "times: steps of one process, by events": (
        "scalebook.training.engine.memory.device.Cpu",
        "seconds",
        lambda self, begin, end: 0.0,
        "0.00 s of",
    ),
    "pinned bytes are planned": (carrier, "landing", _twice, "MB page-locked"),
    "virtual: twice the same bits": (ways, "seeded", lambda kind: kind(), "two runs differ in net.0.weight"),
    "ways: sums are exact": ("tests.gpu.ways", "exact_weights", lambda: torch.zeros(0), "two optimizers by hand"),
    "ways: each learns": ("tests.gpu.ways", "loss_of", lambda model: 1.39, "bf16 up: the loss is 1.39"),
    "compiled, channels last, pinned loader, killed": (
        "tests.gpu.lives",
        "left_behind",
        lambda: ["1: x"],
        "AssertionError",
    ),
    "a full GPU takes a restart": ("tests.gpu.lives", "exact_weights", lambda: torch.zeros(0), "AssertionError"),
    "many fits in one process": ("tests.gpu.lives", "exact_weights", lambda: torch.zeros(0), "fit 0"),
    "finders: rate and largest batch": ("tests.gpu.lives", "Sized.training_step", Pictures.training_step, "answer is"),
    "two GPUs: AsyncPS 2 x 2": ("tests.gpu.several", "exact_weights", lambda: torch.zeros(0), "AssertionError"),
    "two GPUs: DDP, one stopped for a while": ("tests.gpu.several", "stop_this", lambda _: None, "nobody waited"),
}
"""By check: what is changed, to what, and what its failure says."""


@pytest.mark.thorough
@QUIET
@pytest.mark.sampled
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_fails(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, value, says = WRONG[name]
    if isinstance(owner, str):
        monkeypatch.setattr(f"{owner}.{attribute}", value)
    else:
        monkeypatch.setattr(owner, attribute, value)
    outcome = run_check(next(check for check in ALL if check.name == name), CPU, LIMIT_S)
    assert outcome.status == "failed", outcome.told
    assert says in outcome.told


def test_each_point_has_a_wrong_value_that_fails() -> None:
    assert {check.point for check in ALL if check.name in WRONG} == set(POINTS) - {3, 12}  # the two have tests below


def test_a_warm_start_that_finds_other_gpus_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(machine: Machine, folder: Path, uuid: str, answer: Path) -> None:
        answer.write_text("8 GPUs, trained to the last bit", encoding="utf-8")

    monkeypatch.setattr(forks, "_begin", begin)
    with pytest.raises(AssertionError, match="8 GPUs"):
        forks.warm_fork_finds_its_gpu(CPU, tmp_path)


def test_a_torn_parameter_is_seen() -> None:
    model = torn.Wide("cpu")
    assert int(torn.torn(model)) == 0
    model.weights[2].data[7] = 1.0
    assert int(torn.torn(model)) == 1


class _Fails(Dyadic):
    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        raise RuntimeError("something else")


def test_another_error_is_not_out_of_memory(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"told as .*: something else"):
        costs.typed(_Fails("cpu"), CPU, tmp_path)


def test_what_is_not_refused_before_a_fork_fails() -> None:
    with pytest.raises(AssertionError, match="it was not refused in our words"):
        forks.refusal(torch.device("cuda"))


def test_a_check_is_ended_at_its_deadline_with_what_it_has_started() -> None:
    def hangs(machine: Machine, folder: Path) -> str:
        if os.fork() == 0:
            time.sleep(600)
        time.sleep(600)
        return ""

    before = set(descendants(os.getpid()))
    outcome = run_check(Check("hangs", hangs, 1.0), CPU, LIMIT_S)
    assert outcome.status == "failed"
    assert "of 1\n" in outcome.told
    assert "in hangs" in outcome.told  # where it stood
    assert outcome.seconds < 30
    assert set(descendants(os.getpid())) <= before


# --- figures ---------------------------------------------------------------------------------------------------------

PUSHES: list[dict[str, Any]] = [
    {"mb": 100, "shards": 1, "host": "inline", "workers": 1, "per_s": 50.0, "of_copies": 0.2},
    {"mb": 100, "shards": 8, "host": "inline", "workers": 1, "per_s": 170.0, "of_copies": 0.65},
    {"mb": 1000, "shards": 8, "host": "process", "workers": 1, "per_s": 17.0, "of_copies": 0.62},
    {
        "mb": 1000,
        "shards": 8,
        "host": "process",
        "workers": 8,
        "skipped": "needs 19 GB of the host's memory, 8 are free",
    },
]
RESULT = {
    "device": "NVIDIA H200", "gpus": 1, "date": "2027-01-02",
    "driver": "580.1.2", "torch": "2.13.0+cu130", "cores": "16",
    "checks": [
        Outcome("a", "passed", "").as_json(), Outcome("b", "skipped", "needs 2 GPUs, here is 1\na log").as_json(),
    ],
    "figures": {
        "model": {"parameters": 25_600_000, "images": [32, 128]}, "copies": {"100": 0.0037, "1000": 0.037},
        "pushes": PUSHES, "updates_per_s": {"one process": 40.0, "AsyncPS x 2, one device": 50.0, "DDP x 1": None},
    },
}  # fmt: skip


def test_figures_that_miss_the_goal_fail() -> None:
    h200 = Machine("cuda", 1, "NVIDIA H200")
    assert judged({"pushes": PUSHES}, h200, 16) == "one worker, of copies alone: 100 MB: 65%, 1000 MB: 62%"
    slow = [*PUSHES[:2], PUSHES[2] | {"of_copies": 0.59}]
    with pytest.raises(AssertionError, match=r"1000 MB: 59%; the goal is 60%"):
        judged({"pushes": slow}, h200, 16)
    assert "59%" in judged({"pushes": slow}, h200, 4)  # the goal is one of 8 cores
    with pytest.raises(AssertionError, match="no push was measured"):
        judged({"pushes": PUSHES[3:]}, h200, 16)
    with pytest.raises(AssertionError, match="100 MB: 65%, 1000 MB: 0%"):
        judged({"pushes": [*PUSHES[:2], PUSHES[3]]}, h200, 16)


@pytest.mark.thorough
def test_figures_are_measured_here_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "WORKERS", (1, 2))
    monkeypatch.setattr(figures, "SIZES_MB", {"cpu": (1,)})
    monkeypatch.setattr(figures, "_systems", lambda device, gpus: {"one process": lambda s: 2.0})
    monkeypatch.setitem(figures.START_S, "cpu", 0.0)
    kept: list[int] = []
    got = figures.measured("cpu", 0, 60.0, lambda so_far: kept.append(len(so_far["pushes"])))
    ways = [(1, "inline"), (8, "inline"), (8, "process")]
    assert [(row["workers"], row["shards"], row["host"]) for row in got["pushes"]] == [
        (workers, *way) for workers in (1, 2) for way in ways
    ]
    assert kept == [1, 2, 3, 3, 4, 5, 6]  # ResNet-50 comes after the pushes of one worker
    for row in got["pushes"]:
        assert row["per_s"] > 0
        assert row["of_copies"] == pytest.approx(row["per_s"] * got["copies"]["1"])
    late = figures.measured("cpu", 0, -1.0, lambda so_far: None)
    assert {row["skipped"] for row in late["pushes"]} == {"no time was left"}
    assert figures.table(late).count("not measured: no time was left") == 7


def test_a_case_too_large_for_the_machine_is_told() -> None:
    why = figures._too_large("cpu", figures.Case(10**6, 1, "inline", 8))
    assert why.startswith("needs 19000 GB of the host's memory, ")
    assert figures._too_large("cpu", figures.Case(1, 1, "inline", 1)) == ""


@pytest.mark.thorough
def test_ddp_steps() -> None:
    assert figures._ddp("cpu", 2) > 0


def test_the_page_reads_what_was_measured(tmp_path: Path) -> None:
    given = tmp_path / "gpu.json"
    given.write_text(json.dumps(RESULT), encoding="utf-8")
    assert keep(given, tmp_path / "kept").name == "1-nvidia-h200.json"
    told = page(read(tmp_path / "kept"))
    assert "a log" not in told
    assert "Nothing was measured" not in told
    for line in (
        "## 1 x NVIDIA H200, 2027-01-02",
        "Driver 580.1.2, torch 2.13.0+cu130, 16 cores. 1 passed, 0 failed, 1 skipped.",
        "- Skipped, because there were too few GPUs: *b*.",
        "| 100 MB | 3.7 | 54.1 |",
        "| 100 MB | 8 | inline | 1 | 170.0 | 65% |",
        "| AsyncPS x 2, one device | 50.00 | 1.25 |",
    ):
        assert line in told.splitlines()
    assert "| not measured" not in told
    assert re.search(r"^\d+ further figures were not measured", told, re.M)


def test_the_page_without_figures_says_that_nothing_was_measured(tmp_path: Path) -> None:
    assert "**Nothing was measured yet:** no GPU has run this version." in page(read(tmp_path))
    without = {name: value for name, value in RESULT.items() if name != "figures"}
    assert "No figures were measured." in page([without])
    given = tmp_path / "cpu.json"
    given.write_text(json.dumps({"device": "CPU, 2 cores", "gpus": 0}), encoding="utf-8")
    with pytest.raises(ValueError, match=r"has no GPU \(CPU, 2 cores\)"):
        keep(given, tmp_path)


def test_the_page_and_the_readme_are_of_what_was_measured() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(read()), "python -m docs.generate.gpu_page"
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    met = [(result["device"], result["date"]) for result in read()]
    assert ("no gpu has run this version" in readme.lower()) == (not met)
    assert [device for device, date in met if device not in readme or date not in readme] == []


def test_the_driver_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = tmp_path / "version"
    monkeypatch.setattr("tests.gpu.__main__.DRIVER", said)
    assert driver_version() == "none"
    said.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n")
    assert driver_version() == "550.54.15"
    _, about = found("cpu")
    assert about["date"] == time.strftime("%Y-%m-%d", time.gmtime())
    assert FIGURES in {check.name for check in EVERY}
