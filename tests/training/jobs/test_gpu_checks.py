"""What a run asks of GPUs, on machines with none, one and eight of them."""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from typing import Any

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files import yaml
from scalebook.training.cli import fit
from scalebook.training.cli.runner import _fewer_gpus, on_gpus
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.jobs import gpu_allocation, job_requests
from scalebook.training.jobs.devices import Allocation, NodeDevices, this_machine
from scalebook.training.jobs.gpu_checks import gpu_problems
from scalebook.training.jobs.gpus import Gpu
from scalebook.training.jobs.job_folder import JobFolder
from scalebook.training.jobs.leases import lent_at_once, running_leases
from scalebook.training.jobs.schedule import plan
from scalebook.training.notebook import store
from scalebook.training.notebook.notebook_problems import check
from tests.training.benches import Bench, bench
from tests.training.jobs.fake_nvml import Put, eight

__all__ = ["bench"]
NOTEBOOKS = Path(__file__).parents[3] / "notebooks"
LIMITS = {"workers": {"min": 1, "max": 8}}


def config(strategy: Any, devices: int = 1, accelerator: str = "auto", **more: Any) -> dict[str, Any]:
    return {
        "model": {"class_path": "MLPClassifier"},
        "data": {"class_path": "Digits"},
        "trainer": {"strategy": strategy, "devices": devices, "accelerator": accelerator, "max_epochs": 1},
        **more,
    }


def async_ps(**args: Any) -> dict[str, Any]:
    return {"class_path": "AsyncPS", "init_args": args}


def found(asked: dict[str, Any], description: Description, machines: list[NodeDevices] | None = None) -> list[str]:
    return [
        f"{one.key}: {one.message}"
        for one in gpu_problems(Experiment.read(asked, description), machines or [this_machine()])
    ]  # fmt: skip


TOO_MANY = "trainer.devices: is {}, and each worker of DDP needs its own GPU, but this machine has {}"


@pytest.mark.parametrize(
    ("asked", "none", "one"),
    [
        (config("auto"), "", ""),
        (config("auto", accelerator="cpu"), "", ""),
        (config("auto", accelerator="gpu"), "trainer.accelerator: asks for a GPU, but this machine has none", ""),
        (config("ddp", 2), "", TOO_MANY.format(2, 1)),
        (config("auto", 2), "", TOO_MANY.format(2, 1)),  # which is DDP
        (config("ddp", 2, accelerator="cpu"), "", ""),
        (config(async_ps(), 2), "", ""),
        (config(async_ps(workers=4)), "", ""),
        (
            config(async_ps(**LIMITS), 2),
            "",
            "trainer.devices: is 2, and each worker of parameter server needs its own GPU, but this machine has 1",
        ),
    ],
)
def test_gpus_that_are_lacking_are_said_before_the_start(
    asked: dict[str, Any], none: str, one: str, nvml: Put, description: Description
) -> None:
    for count, expected in ((0, none), (1, one), (8, "")):
        nvml(eight()[:count])
        assert found(asked, description) == ([expected] if expected else [])


def test_eight_gpus_are_not_nine(nvml: Put, description: Description) -> None:
    nvml(eight())
    (problem,) = gpu_problems(Experiment.read(config("ddp", 9), description), [this_machine()])
    assert (problem.key, problem.message) == ("trainer.devices", TOO_MANY.format(9, 8).partition(": ")[2])
    assert problem.fix == (
        "Use 8, or set trainer.accelerator: cpu, or use the strategy AsyncPS, whose workers share GPUs."
    )


def test_over_machines_each_has_its_part_of_ddp(description: Description) -> None:
    two = [NodeDevices(list(range(8)), [Gpu(f"GPU-{name}{n}", "A", 1) for n in range(4)], name) for name in "ab"]
    assert found(config("ddp", 8), description, two) == []
    assert found(config("ddp", 9), description, two) == [
        "trainer.devices: is 9, and each worker of DDP needs its own GPU, but no node has more than 4"
    ]
    assert found(config("auto", accelerator="gpu"), description, [NodeDevices([0], name="a")]) == [
        "trainer.accelerator: asks for a GPU, but no node has one"
    ]


@pytest.mark.thorough
@pytest.mark.parametrize("count", [0, 1, 8])
def test_the_notebooks_that_ship_run_on_any_machine(count: int, nvml: Put, description: Description) -> None:
    nvml(eight()[:count])
    for path in sorted(NOTEBOOKS.glob("*.md")):
        wrong = check(store.read(path).notebook, description, [this_machine()])
        assert [str(one) for one in wrong if one.problem.severity == "error"] == [], path


def test_a_notebook_s_check_says_what_its_experiments_lack(nvml: Put, description: Description, tmp_path: Path) -> None:
    nvml(eight()[:1])
    body = yaml.dump({"config": config("ddp", 2)})
    (tmp_path / "x.md").write_text(f"```yaml experiment=two\n{body}```\n", encoding="utf-8")
    wrong = check(store.read(tmp_path / "x.md").notebook, description, [this_machine()])
    (lacking,) = [one.problem for one in wrong if "GPU" in one.problem.message]
    assert (lacking.key, lacking.severity) == ("trainer.devices", "error")
    assert lacking.fix


def submit(bench: Bench, asked: dict[str, Any], description: Description, inline: bool = False) -> JobFolder:
    (job,) = job_requests.submit(
        bench.workspace, Experiment.read(asked, description), seeds=[1], start=False, inline=inline
    )
    return job


@pytest.mark.parametrize(("count", "gpus"), [(0, 0), (1, 1), (8, 2)])
def test_the_queue_asks_for_devices_and_keeps_the_workers(
    count: int, gpus: int, nvml: Put, bench: Bench, description: Description
) -> None:
    nvml(eight()[:count])
    with pytest.raises(ConfigError, match="needs its own GPU") if count == 1 else _nothing():
        submit(bench, config("ddp", 8), description)
    request = submit(bench, config(async_ps(workers=4), 2), description).request()
    assert (request.accelerator, request.workers, request.devices) == ("gpu" if count else "cpu", 4, 2)
    (start,) = plan([request], [], [this_machine()]).starts
    assert start.gpus == [f"GPU-{n}" for n in range(gpus)]


class _nothing:
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


@pytest.mark.parametrize(
    ("strategy", "devices", "count", "said"),
    [
        (async_ps(), 2, 1, (1, 2)),
        (async_ps(), 4, 2, (2, 4)),
        (async_ps(), 4, 8, (4, None)),
        (async_ps(workers=4), 1, 8, (1, 4)),
        (async_ps(workers=2), 8, 8, (2, 2)),
        (async_ps(host="virtual", workers=64, clock={"gradient_s": 0.1}), 1, 8, (1, 64)),
    ],
)
def test_workers_share_the_gpus_that_were_lent(
    strategy: Any,
    devices: int,
    count: int,
    said: tuple[int, int | None],
    nvml: Put,
    bench: Bench,
    description: Description,
) -> None:
    nvml(eight()[:count])
    job = submit(bench, config(strategy, devices), description, inline=True)
    gpus, trainer = _fewer_gpus(job, devices), job.content()["trainer"]
    trainer = on_gpus(trainer, gpus) if gpus else trainer
    assert (trainer["devices"], trainer["strategy"]["init_args"].get("workers")) == said


def test_on_a_cpu_and_under_ddp_the_config_stays(nvml: Put, bench: Bench, description: Description) -> None:
    nvml(eight())
    for asked in (config(async_ps(), 2, "cpu"), config("ddp", 2)):
        job = submit(bench, asked, description, inline=True)
        assert _fewer_gpus(job, 2) == 0


def test_a_run_in_the_foreground_notes_its_gpus_and_the_queue_lends_others(
    nvml: Put, bench: Bench, description: Description, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml(eight()[:2])
    first = submit(bench, config("auto"), description, inline=True)
    started = first.started()
    assert started is not None
    assert started.gpus == ["GPU-0"]
    waiting = submit(bench, config("auto"), description)
    leases = running_leases([first])
    assert [(lease.id, lease.gpus) for lease in leases] == [(first.id, ["GPU-0"])]
    (start,) = plan([waiting.request()], leases, [this_machine()]).starts
    assert start.gpus == ["GPU-1"]
    second = submit(bench, config("auto"), description, inline=True).started()
    assert second is not None
    assert second.gpus == ["GPU-1"]
    with pytest.raises(ConfigError, match=r"asks for 1 GPU; 0 of 2 free, runs .* and .* have both") as refused:
        submit(bench, config("auto"), description, inline=True)
    assert str(refused.value).startswith("trainer.accelerator: asks")
    assert "use cpu" in str(refused.value)
    assert len(job_requests.all_jobs(bench.workspace)) == 3  # nothing is left of what was refused
    assert submit(bench, config("auto", accelerator="cpu"), description, inline=True).started() is not None
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    fit._take(second.gpus)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-1"


def test_two_runs_that_begin_in_the_foreground_at_once_take_two_gpus(
    nvml: Put, bench: Bench, description: Description, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second looks at what is free when the first has noted what it takes."""
    nvml(eight()[:2])
    looking = Barrier(2)

    def look(*args: Any) -> Allocation:
        with suppress(BrokenBarrierError):  # only where both may look at once
            looking.wait(1.0)
        return lent_at_once(*args)

    monkeypatch.setattr(gpu_allocation, "lent_at_once", look)
    with ThreadPoolExecutor(2) as pool:
        begun = [pool.submit(submit, bench, config("auto"), description, inline=True) for _ in range(2)]
        started = [one.result().started() for one in begun]
    assert sorted(one.gpus[0] for one in started if one is not None) == ["GPU-0", "GPU-1"]


def test_a_share_of_a_gpu_goes_into_the_queue(nvml: Put, bench: Bench, description: Description) -> None:
    nvml(eight()[:1])
    jobs = [submit(bench, config("auto", gpu_share=0.5), description).request() for _ in range(3)]
    made = plan(jobs, [], [this_machine()])
    assert [start.gpus for start in made.starts] == [["GPU-0"], ["GPU-0"]]
    assert made.reasons[jobs[2].id].startswith("waits for 1 GPU; 0 of 1 free")
