"""What a search, its cost, its presets and a plan make of machines with no, one and eight GPUs."""

import os
from pathlib import Path
from typing import Any

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files import yaml
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.search.costs import cost
from scalebook.training.experiments.search.definition import read_search
from scalebook.training.experiments.search.presets import preset_body
from scalebook.training.experiments.search.types import SearchSpec
from scalebook.training.jobs.devices import this_machine
from scalebook.training.search import search_requests
from scalebook.training.search.driver.trial_jobs import side_by_side
from tests.training.jobs.fake_nvml import Put, eight

MLP: dict[str, Any] = {"model": "MLPClassifier", "data": "Digits"}
WORDS = "{strategy: {values: [single, ddp, async]}, workers: {values: [1, 2]}}"


def spec(description: Description, space: str = "{model.hidden: {int: [8, 64]}}", **more: Any) -> SearchSpec:
    config = {**MLP, "trainer": {"max_epochs": 1, **more.pop("trainer", {})}, **more}
    body = {"objective": "val/loss", "space": yaml.load(space), "config": config, "trials": 60}
    return read_search(body, None, description)


@pytest.fixture(autouse=True)
def _sixteen_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))


def at_a_time(asked: SearchSpec, description: Description, workspace: Workspace) -> tuple[int, int]:
    machine = this_machine()
    expected = cost(asked, len(machine.cores), None, len(machine.gpus)).side_by_side
    return side_by_side(asked, workspace), expected


def test_as_many_trials_run_at_a_time_as_there_are_gpus_or_shares(
    nvml: Put, tmp_path: Path, description: Description, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace(tmp_path).create()
    plain, small = spec(description), spec(description, gpu_share=1 / 3)
    two = spec(description, trainer={"strategy": "AsyncPS", "devices": 2})
    on_cpu = spec(description, trainer={"accelerator": "cpu"})
    for count, expected in ((0, (16, 16, 8, 16)), (1, (1, 3, 1, 16)), (8, (8, 16, 4, 16))):
        nvml(eight()[:count])
        found = [at_a_time(asked, description, workspace) for asked in (plain, small, two, on_cpu)]
        assert found == [(one, one) for one in expected]


def test_ddp_with_too_few_gpus_is_refused_before_the_first_trial(
    nvml: Put, tmp_path: Path, description: Description
) -> None:
    workspace = Workspace(tmp_path).create()
    for count, message in (
        (0, ""),
        (
            1,
            (
                "ddp × 2 cannot run: trainer.devices is 2, and each worker of DDP needs its own GPU, but this machine "
                "has 1"
            ),
        ),
        (8, ""),
    ):
        nvml(eight()[:count])
        wrong = search_requests.lacking_gpus(spec(description, WORDS), [this_machine()])
        assert [(one.key, one.message) for one in wrong] == ([("space.workers", message)] if message else [])
    nvml(eight()[:1])
    body = {"objective": "val/loss", "space": yaml.load(WORDS), "config": MLP, "trials": 3}
    with pytest.raises(ConfigError, match="needs its own GPU"):
        search_requests.start(workspace, body, None, name="s", description=description)
    nvml()
    wrong = search_requests.lacking_gpus(spec(description, trainer={"accelerator": "gpu"}), [this_machine()])
    assert [one.message for one in wrong] == ["asks for a GPU, but this machine has none"]


@pytest.mark.parametrize(("count", "workers", "ddp"), [(0, [2, 4, 8, 16], True), (1, [2], False), (8, [2, 4, 8], True)])
def test_presets_go_as_far_as_there_are_gpus(
    count: int, workers: list[int], ddp: bool, nvml: Put, description: Description
) -> None:
    nvml(eight()[:count])
    machine = this_machine()
    body = preset_body("strategies", Experiment.read(MLP, description), len(machine.cores), machine.together)
    assert body["space"]["workers"] == {"values": workers}
    assert ("ddp" in body["space"]["strategy"]["values"]) == ddp
    wrong = search_requests.lacking_gpus(read_search({**body, "config": MLP}, None, description), [machine])
    assert wrong == []
