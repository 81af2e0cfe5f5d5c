"""A profile measured in a real job, and the command from a profile to an answer."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from scalebook.training.base.failures import FailureClass
from scalebook.training.base.files import records, yaml
from scalebook.training.base.workspace import Workspace
from scalebook.training.cli import plan_run
from scalebook.training.cli.main import main as scalebook
from scalebook.training.engine.rules.clock_settings import Distribution
from scalebook.training.experiments.catalogue import describe
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.jobs.job_folder import JobFolder, Result
from scalebook.training.jobs.job_requests import all_jobs
from scalebook.training.jobs.supervisor_handle import hold_supervisor
from scalebook.training.jobs.usage import Usage
from scalebook.training.planner import measuring, play
from scalebook.training.planner.answer_words import HEADER, PRICED
from scalebook.training.planner.measuring import (
    MachineWatch,
    NotMeasured,
    plan_config,
    profile_of,
    reduce_link,
    software_of,
    used_by_others,
)
from scalebook.training.planner.step_times import FILE, StepMeasures, frames, shard_shares
from scalebook.training.pricing.layer_times import OUTSIDE
from scalebook.training.pricing.layers import Layer
from scalebook.training.pricing.profile import Profile, Software, load_profile
from scalebook.training.tracking import names
from tests.shared_files import Prepared
from tests.training.benches import clear
from tests.training.experiments.searches import NO_CLASSES
from tests.training.jobs.fake_nvml import Put, eight
from tests.training.runs import reader

pytestmark = pytest.mark.long

LOCAL = "scalebook.training.engine.rules.LocalSGD"
CONFIG: dict[str, Any] = {
    "model": {"class_path": "MLPClassifier", "init_args": {"hidden": 32}},
    "data": {"class_path": "Digits", "init_args": {"batch_size": 16, "limit": 300}},
    "optimizer": {"class_path": "SGD", "init_args": {"lr": 0.1}},
    "trainer": {"accelerator": "cpu", "max_epochs": 3, "strategy": {"class_path": "AsyncPS"}, "devices": 2},
}


@pytest.fixture
def shop(tmp_path: Path, prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    made = prepared.into(Workspace(tmp_path / "shop"))
    (made.root / "x.yaml").write_text(yaml.dump(CONFIG), encoding="utf-8")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("SCALEBOOK_WORKSPACE", str(made.root))
    with hold_supervisor(made):
        yield made
    clear(made)


def test_cores_that_others_use_are_noticed() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        try:
            assert used_by_others() >= 0.3
        finally:
            other.kill()


@pytest.mark.parametrize(("others", "told"), [(0.7, 0.7), (0.2, 0.0)])
def test_cores_that_others_use_while_a_job_runs_are_what_the_job_did_not_use(
    others: float, told: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job uses 1.2 cores from second 2 to 8, others the same throughout; the machine is looked at each second."""
    now = 100.0
    samples = [Usage(seconds, 1.2, 1.0) for seconds in (2.0, 5.0, 8.0)]
    started: Any = SimpleNamespace(started=100.0)
    job: Any = SimpleNamespace(started=lambda: started)
    monkeypatch.setattr(measuring, "read_usage", lambda _: samples)
    monkeypatch.setattr(measuring, "time", lambda: now)
    monkeypatch.setattr(measuring, "machine_cpu_s", lambda: 50 + (now - 100) * (others + 1.2))
    watch = MachineWatch()
    assert watch.others(job) == 0.0, "before anything was looked at"
    for later in (0.0, 0.2, 1.3, 2.5, 3.1, 4.2, 5.7, 6.6, 7.4, 8.3):
        now = 100.0 + later
        watch.look(job, "")
    assert watch.others(job) == told
    samples.clear()
    assert watch.others(job) == 0.0


@pytest.mark.parametrize(("used", "busy"), [([1.3, 0.0], 0.0), ([1.3, 1.6], 1.3), ([1.3, 0.7], 0.7), ([0.0], 0.0)])
def test_a_measurement_beside_others_is_repeated_and_the_quieter_one_counts(
    used: list[float], busy: float, shop: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two real cores are not to be kept busy for it: what others use is given, and no run is made."""
    runs = iter(used)

    def measured(*_: Any) -> Profile:
        cores = next(runs)
        return Profile(0.01 + cores, 16, 4.0, 4.0, busy=cores, source="measured")

    monkeypatch.setattr(measuring, "_measured", measured)
    monkeypatch.setattr(measuring, "used_by_others", lambda: 0.0)
    out = StringIO()
    profile = measuring.measure(shop, Experiment.read(CONFIG, describe(shop)), out)
    assert (profile.gradient_s, profile.busy) == (0.01 + busy, busy)
    times = sorted(0.01 + cores for cores in used)
    assert profile.apart == pytest.approx(times[-1] / times[0] if busy and len(used) == 2 else 1.0)
    if len(used) == 1:
        assert (out.getvalue(), profile.source) == ("", "measured")
    else:
        assert "other processes used 1.3 cores of this machine, so the measurement is repeated" in out.getvalue()
        assert profile.source == "measured, the quieter of two measurements"
    with pytest.raises(StopIteration):
        next(runs)


def test_a_wait_for_a_quiet_machine_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([1.0, 1.0, 0.0])
    monkeypatch.setattr(measuring, "used_by_others", lambda: next(looks))
    measuring.wait_for_quiet()
    assert next(looks, None) is None
    monkeypatch.setattr(measuring, "used_by_others", lambda: 1.0)
    monkeypatch.setattr(measuring, "WAIT_S", 0.05)
    measuring.wait_for_quiet()


@pytest.mark.thorough
def test_a_config_is_measured_and_planned_for(
    shop: Workspace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(play, "LEAST", 100)  # how exact a play is, test_play says
    config, saved, found = shop.root / "x.yaml", shop.root / "p.yaml", shop.root / "a.json"
    code = scalebook(
        ["plan", "-c", str(config), "--workers", "1,4", "--strategies", "async", "--links", "own,1gbe",
         "--target", "0.2",
         "--trainer.devices", "4", "--save-profile", str(saved), "--json", str(found)]
    )  # fmt: skip
    printed = capsys.readouterr()
    assert code == 0, printed.err
    profile = load_profile(saved)
    assert (profile.batch_size, profile.title) == (16, "MLPClassifier")
    parameters = (64 * 32 + 32) + (32 * 32 + 32) + 2 * 2 * 32 + (32 * 10 + 10)  # three layers, two of BatchNorm
    assert profile.push_bytes == profile.pull_bytes == 4 * parameters
    assert profile.weights == 4 * parameters
    assert profile.state in (0.0, *range(8 * parameters, 8 * parameters + 200)), "none, or Adam's two and its steps"
    assert 1e-4 < profile.gradient_mean_s < 1
    assert isinstance(profile.server_s, float)
    assert 1e-5 < profile.server_s < 0.1
    assert profile.cores is not None
    assert list(profile.slowdown) == ([min(profile.cores, 16)] if profile.cores > 1 else [])
    assert all(0.5 < factor < 20 for factor in profile.slowdown.values())
    assert 0.5 <= profile.shard_shares[2] < 1
    assert sum(nbytes for _, nbytes in profile.ready) == 4 * parameters
    assert 0 < profile.ready[0][0] <= profile.ready[-1][0] <= 1
    assert [layer.name for layer in profile.layers] == [f"net.{number}" for number in range(8)] + [OUTSIDE]
    assert sum(layer.parameter_bytes for layer in profile.layers) == 4 * parameters
    assert sum(layer.seconds for layer in profile.layers) == pytest.approx(profile.gradient_mean_s, rel=1e-6)
    assert profile.memory > 1e8
    assert set(profile.microbatches) == {2, 4, 8, 16}
    assert all(factor >= 1 for factor in profile.microbatches.values())
    if profile.cores > 1:
        assert profile.node is not None
        assert isinstance(profile.node.link.bandwidth, float)
        assert 1e6 < profile.node.link.bandwidth < 1e11
        assert (profile.overlap, profile.all_reduce) == (False, "ring")
    jobs = all_jobs(shop)
    measured = (
        2 if "the measurement is repeated" in printed.out + printed.err else 1
    )  # others may use the machine meanwhile
    assert [reader(shop).run(job.id).tags[names.TAG_TEST] for job in jobs] == ["plan"] * (measured + 2)
    reached = json.loads((shop.root / "a-target.json").read_text())
    assert [point["workers"] for point in reached["points"]] == [1, 4]
    assert {job.id for job in jobs} > set(reached["runs"])
    assert all(0 < point["updates"] <= 3 * 19 for point in reached["points"])  # 300 samples, three epochs
    assert "To val/accuracy 0.2 under async" in printed.out
    answer = json.loads(found.read_text())
    assert [curve["network"] for curve in answer["curves"]] == ["own", "1gbe"]
    played = [point["updates_per_s"] for point in answer["curves"][0]["points"]]  # four need not be faster on two cores
    assert [point["updates_per_s"] for point in reached["points"]] == pytest.approx(played)
    assert "MLPClassifier: a gradient of 16 samples takes" in printed.out
    assert "async, 1 shard, 1 Gbit/s Ethernet" in printed.out


@pytest.mark.thorough
def test_a_config_is_planned_as_it_is_written(
    shop: Workspace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(play, "LEAST", 50)
    monkeypatch.setattr(play, "LEAST", 50)
    written = {
        "rule": "sync",
        "push_codec": "int8",
        "shards": 4,
        "local": {"class_path": LOCAL, "init_args": {"every": 8}},
    }
    trainer = {**CONFIG["trainer"], "strategy": {"class_path": "AsyncPS", "init_args": written}}
    (path := shop.root / "y.yaml").write_text(yaml.dump({**CONFIG, "trainer": trainer}), encoding="utf-8")
    saved, found = shop.root / "p.yaml", shop.root / "a.json"
    code = scalebook(["plan", "-c", str(path), "--workers", "1,4", "--save-profile", str(saved), "--json", str(found)])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    profile = load_profile(saved)
    parameters = (64 * 32 + 32) + (32 * 32 + 32) + 2 * 2 * 32 + (32 * 10 + 10)
    assert profile.pull_bytes == 4 * parameters
    assert parameters < profile.push_bytes < 1.5 * parameters
    curve = json.loads(found.read_text())["curves"][0]
    assert (curve["rule"], curve["shards"]) == ("sync", 4)
    assert [point["workers"] for point in curve["points"]] == [1, 2, 4], "the config's two are among them"
    assert "sync, 4 shards, local SGD, every 8, pushes int8" in printed.out
    assert "As configured, 2 workers make" in printed.out


def test_a_profile_is_planned_for_without_a_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path := tmp_path / "p.yaml").write_text("gradient: 100 ms\nparameters: 1 MB\nserver: 25 ms\n")
    assert scalebook(["plan", "--profile", str(path), "--workers=1,4,16", "--strategies", "async"]) == 0
    printed = capsys.readouterr().out
    assert "Workers help up to about 5 (" in printed
    assert "The limit is the servers' time" in printed
    assert HEADER not in printed
    assert printed.endswith(f"\n{plan_run.MORE}\n")
    assert scalebook(["plan", "--profile", str(path), "--workers=1,4", "--table", "--price", "2"]) == 0
    printed = capsys.readouterr().out
    assert printed.count(f"{HEADER}{PRICED}") == 4
    assert "\nfsdp\n" in printed


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--workers", "1,2"], "plan: needs a config or a profile"),
        (["--profile"], "--profile: has no value"),
        (["--profile", "none.yaml"], "--profile: there is no file"),
        (
            ["--profile", "p.yaml", "--strategies", "asink"],
            "--strategies: there is no rule 'asink'. Did you mean `async`?",
        ),
        (["--profile", "p.yaml", "--links", "20gbe"], "--links: there is no network"),
        (["--profile", "p.yaml", "--figure", "f.jpg"], "--figure: is f.jpg"),
        (["--profile", "p.yaml", "--target", "1"], "--target: needs a model"),
        (["--profile", "p.yaml", "--lr", "1"], "--lr: is not an option of `plan` when no config is given"),
    ],
)
def test_mistakes_are_said_before_anything_starts(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scalebook(["plan", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_plan_is_measured_by_workers_of_a_parameter_server() -> None:
    assert plan_config(Experiment.read(CONFIG, NO_CLASSES), 4, {}).written["trainer"]["devices"] == 4
    coded = {"push_codec": "int8"}
    config = plan_config(Experiment.read(CONFIG, NO_CLASSES), 1, coded).written
    assert config["trainer"]["strategy"] == {
        "class_path": "scalebook.training.lightning.AsyncPS",
        "init_args": coded,
    }
    assert config["trainer"]["devices"] == 1
    assert config["data"] == CONFIG["data"]
    shared = plan_config(Experiment.read(CONFIG, NO_CLASSES), 4, coded, 1).written["trainer"]
    assert (shared["devices"], shared["strategy"]["init_args"]) == (1, {**coded, "workers": 4})
    several = plan_config(
        Experiment.read({**CONFIG, "trainer": {"num_nodes": 2, "max_epochs": 1}}, NO_CLASSES), 2, {}
    ).written
    assert "num_nodes" not in several["trainer"]  # what is measured is measured here


@pytest.mark.parametrize(
    ("count", "workers", "devices", "tries"),
    [(0, 4, 1, [8]), (1, 1, 1, [2, 1]), (1, 4, 1, [4]), (8, 1, 1, [8]), (8, 8, 8, [8]), (8, 12, 8, [12])],
)
def test_as_many_are_measured_at_once_as_share_cores_or_gpus(
    count: int, workers: int, devices: int, tries: list[int], nvml: Put, monkeypatch: pytest.MonkeyPatch,
    description: Description, tmp_path: Path,
) -> None:  # fmt: skip
    """On one GPU two, where the config has one worker; one, where two do not fit into its memory."""
    nvml(eight()[:count])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    strategy = {"class_path": "AsyncPS", "init_args": {"workers": workers}}
    config = {**CONFIG, "threads": 2, "trainer": {"accelerator": "auto", "strategy": strategy, "devices": devices}}
    told = StepMeasures(100, 16, 0.01, 0.3, 0.001, 4, 4)
    tried = list[int]()

    def run(_workspace: Workspace, experiment: Experiment, *_: Any) -> tuple[JobFolder, Result, float]:
        trainer = experiment.written["trainer"]
        tried.append(trainer["strategy"]["init_args"].get("workers", trainer["devices"]))
        folder = JobFolder(tmp_path / f"{len(tried)}")
        folder.path.mkdir()
        if len(tried) < len(tries):
            return folder, Result("failed", 0.0, FailureClass.OUT_OF_MEMORY), 0.0
        records.save(folder.path / FILE, asdict(told))
        return folder, Result("finished", 0.0), 0.0

    monkeypatch.setattr(measuring, "_run", run)
    monkeypatch.setattr(measuring, "_title", lambda job: "a")
    profile = measuring.measure(Workspace(tmp_path), Experiment.read(config, description), StringIO())
    assert tried == tries
    assert (profile.cores, profile.gpus) == (max(tries[-1], count), count)


def test_noise_in_two_all_reduces_makes_no_link_without_end() -> None:
    """Two workers hand over all bytes once. Where the longer one took no longer, a tenth of its time is its bytes'."""
    told = StepMeasures(100, 16, 0.01, 0.3, 0.001, 4, 4, at_once=2, reduce_s=[[4_000.0, 0.001], [4_004_000.0, 0.005]])
    link = reduce_link(told)
    assert link is not None
    assert (link.latency_s, link.bandwidth) == pytest.approx((0.0005, 1e9))
    noisy = reduce_link(replace(told, reduce_s=[[4_000.0, 0.006], [4_004_000.0, 0.005]]))
    assert noisy is not None
    assert (noisy.latency_s, noisy.bandwidth) == pytest.approx((0.00225, 8e9))


def test_each_end_of_a_frame_has_half_of_its_time() -> None:
    told = StepMeasures(100, 16, 0.01, 0.3, 0.001, 4, 4, message_s=[[4_000.0, 0.0001], [4_004_000.0, 0.0021]])
    assert software_of(told) == Software(pytest.approx(5e-5), pytest.approx(2e9))  # type: ignore[arg-type]  # floats
    assert profile_of(told, "a", 2).software == software_of(told)
    assert software_of(replace(told, message_s=[])) is None
    (few, short_s), (many, long_s) = frames((4_000, 4_000_000))
    assert (few, many) == (4_000, 4_000_000)
    assert 1e-6 < short_s < long_s < 1


def test_gradients_that_hardly_differ_are_all_the_same() -> None:
    told = StepMeasures(100, 16, 0.01, 0.3, 0.001, 4, 4, {"2": 0.6})
    assert profile_of(told, "a", 2).gradient_s == Distribution("gamma", 0.01, 0.3)
    assert profile_of(StepMeasures(100, 16, 0.01, 0.001, 0.001, 4, 4), "a", 2).gradient_s == 0.01
    assert profile_of(told, "a", 2).shard_shares == {2: 0.6}
    assert profile_of(told, "a", 2).slowdown == {}
    assert profile_of(replace(told, at_once=2, slowdown=1.3), "a", 2).slowdown == {2: 1.3}
    assert profile_of(replace(told, at_once=2, slowdown=0.65), "a", 2).slowdown == {2: 1.0}  # a busy machine


def test_batches_that_make_one_gradient_are_kept_one_at_a_time() -> None:
    told = StepMeasures(100, 16, 0.01, 0.0, 0.001, 4, 4, layers=[Layer("a", 0.004, 0.006, 8.0, 4.0, 20.0)], memory=1e9)
    assert profile_of(told, "a", 2).layers == (Layer("a", 0.004, 0.006, 8.0, 4.0, 20.0),)
    assert profile_of(told, "a", 2, 4).layers == (Layer("a", 0.016, 0.024, 32.0, 4.0, 20.0),)
    assert profile_of(told, "a", 2).memory == 1e9


def test_the_largest_shard() -> None:
    parameters = [(str(size), torch.zeros(size)) for size in (60, 20, 10, 10)]
    assert shard_shares(parameters) == {"2": 0.6, "4": 0.6}


def test_an_experiment_of_a_notebook_is_planned_for(
    tmp_path: Path, prepared: Prepared, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prepared.into(Workspace(tmp_path))
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n```yaml experiment=digits\n{yaml.dump({'config': CONFIG})}```\n", encoding="utf-8")
    asked: list[Any] = []

    def measured(workspace: Workspace, experiment: Experiment, *_: Any) -> Profile:
        config = experiment.written
        asked.append((workspace.root, config["model"], config["data"]["init_args"]["batch_size"]))
        raise NotMeasured("it was not to be.")

    monkeypatch.setattr(plan_run, "measure", measured)
    assert scalebook(["plan", str(page), "--cell", "digits", "--model.hidden", "8"]) == 1
    assert asked == [(tmp_path, {"class_path": "MLPClassifier", "init_args": {"hidden": 8}}, 16)]
    several = ["plan", str(page), "--cell", "digits", "--trainer.num_nodes", "2", "--trainer.devices", "1"]
    assert scalebook([*several, "--links", "10gbe"]) == 1  # played, not run
    assert len(asked) == 2
    assert scalebook(several) == 2
    assert "trainer.num_nodes: is 2, and one node cannot measure the network between" in capsys.readouterr().err
    assert scalebook(["plan", str(page), "--cell", "letters"]) == 2
    assert "--cell: letters is not an experiment of this notebook. Known: digits" in capsys.readouterr().err
