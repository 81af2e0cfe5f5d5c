"""From a config to a waiting job and a SCHEDULED run, and back to a person's question which one."""

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import psutil
import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files import yaml
from scalebook.training.base.processes import ProcessId
from scalebook.training.base.safe_path import environment
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments.description import ClassInfo, Description, Field
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.jobs import job_requests, supervisor_handle
from scalebook.training.jobs.job_folder import JobFolder, Result
from scalebook.training.tracking import names
from scalebook.training.tracking.run_start import open_store
from tests.shared_files import Prepared
from tests.training.benches import Bench, until_state, wait_for

DESCRIPTION = Description(
    models=[ClassInfo("zoo.Net", "Net", fields=[Field("width", "int", default=8, minimum=1)])],
    data=[ClassInfo("zoo.Images", "Images", fields=[Field("batch_size", "int", default=32, minimum=1)])],
    strategies=[
        ClassInfo("auto", "auto", config_value="auto"),
        ClassInfo("ddp", "ddp", config_value="ddp"),
    ],
    optimizers=[ClassInfo("torch.optim.SGD", "SGD", fields=[Field("lr", "float", default=0.1)])],
    lr_schedulers=[],
    trainer=[
        Field("devices", "int", default=1, minimum=1),
        Field("max_epochs", "int", default=None, nullable=True),
        Field("accelerator", "enum", default="auto", choices=["auto", "cpu", "gpu"]),
        Field("log_every_n_steps", "int", default=10),
        Field("num_sanity_val_steps", "int", default=0),
    ],
    default_optimizer={"class_path": "torch.optim.SGD", "init_args": {"lr": 0.1}},
)
CONFIG: dict[str, Any] = {
    "trainer": {"strategy": "ddp", "devices": 2, "max_epochs": 3},
    "model": {"class_path": "Net"},
    "data": {"class_path": "Images", "init_args": {"batch_size": 16}},
}

FLAT = ("strategy", "rule", "workers", "batch_per_worker", "batch_global", "lr", "clock")


def submit(bench: Bench, seeds: tuple[int, ...] = (1,), **more: Any) -> list[JobFolder]:
    told = {"notebook": "first-steps.md", "cell": "net-ddp", "start": False, **more}
    return job_requests.submit(bench.workspace, Experiment.read(CONFIG, DESCRIPTION), seeds=seeds, **told)


def test_each_seed_is_a_job_and_a_scheduled_run(bench: Bench) -> None:
    jobs = submit(bench, seeds=(1, 2))
    client = open_store(bench.workspace)
    for job, seed in zip(jobs, (1, 2), strict=True):
        request, run = job.request(), client.get_run(job.id)
        assert job.state() == "waiting"
        assert (request.workers, request.seed, request.strategy) == (2, seed, "ddp")
        assert (request.title, run.info.run_name) == (f"net-ddp seed {seed}", f"seed {seed}: net-ddp")
        assert run.info.status == "SCHEDULED"
        assert client.get_experiment(run.info.experiment_id).name == request.mlflow_experiment == "first-steps"
        tags = {key: value for key, value in run.data.tags.items() if key.startswith("scalebook.")}
        assert tags[names.TAG_SEED] == str(seed)
        assert tags[names.TAG_NOTEBOOK] == "first-steps.md"
        assert tags[names.TAG_CONFIG_HASH] == request.config_hash
        assert (tags[names.TAG_BATCH_PER_WORKER], tags[names.TAG_BATCH_GLOBAL]) == ("16", "32")
        assert (tags[names.TAG_MODEL], tags[names.TAG_LR_ASKED]) == ("zoo.Net", "0.1")
        assert run.data.params["data.batch_size"] == "16"
        flat = {name: value for name, value in run.data.params.items() if name in FLAT}
        assert flat == dict(zip(FLAT, ("ddp", "none", "2", "16", "32", "0.1", "real"), strict=True))
        assert run.data.params["seed_everything"] == str(seed)
        config = yaml.load(job.config.read_text(encoding="utf-8"))
        assert config["seed_everything"] == seed
        assert config["model"] == {"class_path": "zoo.Net", "init_args": {"width": 8}}


def test_a_wrong_config_leaves_nothing_behind(bench: Bench) -> None:
    wrong = {**CONFIG, "data": {"class_path": "Images", "init_args": {"batch_size": 0}}}
    with pytest.raises(ConfigError, match=r"data\.init_args\.batch_size"):
        job_requests.submit(bench.workspace, Experiment.read(wrong, DESCRIPTION), seeds=[1])
    gpu = {**CONFIG, "trainer": {"accelerator": "gpu"}}
    with pytest.raises(ConfigError, match="this machine has none"):
        job_requests.submit(bench.workspace, Experiment.read(gpu, DESCRIPTION), seeds=[1])
    assert list(bench.workspace.jobs.iterdir()) == []
    assert open_store(bench.workspace).search_experiments(filter_string="name = 'command line'") == []
    assert supervisor_handle.running(bench.workspace) is None


def test_an_inline_job_belongs_to_this_process(bench: Bench) -> None:
    (job,) = submit(bench, inline=True, notebook=None, cell=None)
    started = job.started()
    assert started is not None
    assert started.inline
    assert started.handle.process == ProcessId.of()
    assert job.state() == "running"
    assert job.request().title == "Net ddp × 2 seed 1"
    assert job.request().mlflow_experiment == "command line"


def test_jobs_are_listed_newest_first_and_found_by_the_beginning_of_their_id(bench: Bench) -> None:
    jobs = submit(bench, seeds=(1, 2, 3))
    assert job_requests.all_jobs(bench.workspace) == list(reversed(jobs))
    assert job_requests.find(bench.workspace, jobs[0].id[:12]) == jobs[0]
    twin = bench.add(replace(jobs[0].request(), id=jobs[0].id[:12] + "f" * 20), {})
    with pytest.raises(ConfigError, match="matches 2 jobs"):
        job_requests.find(bench.workspace, twin.id[:12])
    with pytest.raises(ConfigError, match="is not a job of"):
        job_requests.find(bench.workspace, "nothing")


def test_stop_asks_and_has_somebody_listen(bench: Bench) -> None:
    job = bench.job(seconds=60)
    bench.supervise()
    until_state(job, "running")
    job_requests.stop(job)
    assert until_state(job, "stopped") == "stopped"
    job.stop_file.unlink()
    job_requests.stop(job)
    assert not job.stop_file.exists()


def test_a_job_is_resumed_from_its_newest_checkpoint(bench: Bench) -> None:
    (job,) = submit(bench, seeds=(5,))
    with pytest.raises(ConfigError, match="is waiting"):
        job_requests.resume(bench.workspace, job, DESCRIPTION)
    job.write(Result("failed", time.time()))
    with pytest.raises(ConfigError, match="left no checkpoint"):
        job_requests.resume(bench.workspace, job, DESCRIPTION)
    (job.path / "checkpoints").mkdir()
    checkpoint = job.path / "checkpoints" / "last.ckpt"
    with ZipFile(checkpoint, "w") as file:
        file.writestr("state", "whole")
    time.sleep(0.02)
    (job.path / "checkpoints" / "torn.ckpt").write_bytes(checkpoint.read_bytes()[:40])  # by a full disk
    bench.supervise()
    again = job_requests.resume(bench.workspace, job, DESCRIPTION)
    assert yaml.load(again.config.read_text(encoding="utf-8"))["ckpt_path"] == str(checkpoint)
    request = again.request()
    assert (request.resumed_from, request.seed, request.cell) == (job.id, 5, "net-ddp")
    assert request.config_hash == job.request().config_hash


def test_only_ended_jobs_can_be_deleted(bench: Bench) -> None:
    (job,) = submit(bench)
    with pytest.raises(ConfigError, match="is waiting"):
        job_requests.delete(bench.workspace, job)
    job.write(Result("finished", time.time()))
    job_requests.delete(bench.workspace, job)
    assert not job.path.exists()
    assert open_store(bench.workspace).get_run(job.id).info.lifecycle_stage == "deleted"


def test_asking_the_queue_loads_neither_torch_nor_mlflow() -> None:
    code = "import sys, scalebook.training.cli.jobs, scalebook.training.supervisor.supervisor_loop\n"
    code += "from scalebook.training.jobs import job_requests, supervisor_handle, waiting_jobs\n"
    code += "print(sorted({'torch', 'mlflow', 'lightning', 'streamlit'} & set(sys.modules)))"
    with psutil.Popen([sys.executable, "-c", code], stdout=-1, text=True) as process:
        assert process.communicate(timeout=30)[0] == "[]\n"


def test_submitting_a_job_loads_few_of_our_modules(tmp_path: Path, prepared: Prepared) -> None:
    """What a queue entry is made of: a config that is checked, records, the run in MLflow. Nothing that runs it."""
    prepared.open(Workspace(tmp_path))
    program = f"""
import sys
from pathlib import Path
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.jobs import job_requests
from scalebook.training.base.workspace import Workspace

config = {{
    "model": {{"class_path": "MLPClassifier"}}, "data": {{"class_path": "Digits"}},
    "trainer": {{"strategy": {{"class_path": "AsyncPS", "init_args": {{"workers": 2}}}}, "max_epochs": 1}},
}}
description = Description.from_json(Path({str(prepared.description)!r}).read_text())
(job,) = job_requests.submit(Workspace(Path.cwd()), Experiment(config, description), seeds=[1], start=False)
assert job.state() == "waiting"
print(*(name for name in sys.modules if name.startswith("scalebook.")))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60,
        check=True,
    )  # fmt: skip
    ours = [name.removeprefix("scalebook.") for name in done.stdout.split()]
    assert len(ours) <= 80, sorted(ours)
    above = ("training.lightning", "training.planner", "training.supervisor", "training.cluster")
    assert [name for name in ours if name.startswith(above)] == []


def test_a_deleted_experiment_is_brought_back(bench: Bench) -> None:
    (job,) = submit(bench)
    client = open_store(bench.workspace)
    experiment = client.get_run(job.id).info.experiment_id
    client.delete_experiment(experiment)
    (again,) = submit(bench)
    assert client.get_run(again.id).info.experiment_id == experiment
    assert wait_for(lambda: client.get_experiment(experiment).lifecycle_stage, "a stage") == "active"


def test_a_checkpoint_that_is_not_there_is_said_before_anything_is_made(bench: Bench) -> None:
    for told in ("nowhere.ckpt", "/no/such.ckpt", "x" * 5000):
        with pytest.raises(ConfigError, match=r"ckpt_path: is '.*, which does not exist"):
            job_requests.submit(
                bench.workspace, Experiment.read({**CONFIG, "ckpt_path": told}, DESCRIPTION), seeds=[1], start=False
            )
    assert job_requests.all_jobs(bench.workspace) == []


def test_a_checkpoint_is_found_beside_the_notebooks(bench: Bench) -> None:
    (bench.workspace.root / "kept.ckpt").touch()
    config = {**CONFIG, "ckpt_path": "kept.ckpt"}
    (job,) = job_requests.submit(bench.workspace, Experiment.read(config, DESCRIPTION), seeds=[1], start=False)
    assert yaml.load(job.config.read_text(encoding="utf-8"))["ckpt_path"] == str(bench.workspace.root / "kept.ckpt")
