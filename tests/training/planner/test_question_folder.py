"""A question's folder: what another process reads of it, and the process that works on it."""

import os
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files import records, yaml
from scalebook.training.base.processes import ProcessId
from scalebook.training.base.workspace import Workspace
from scalebook.training.jobs.job_folder import JobFolder, Progress
from scalebook.training.planner import planner_process, play
from scalebook.training.planner import question_folder as asking
from scalebook.training.planner.answering import answer
from scalebook.training.planner.measuring import NotMeasured
from scalebook.training.planner.question_folder import PlanProgress, PlanRequest, QuestionFolder
from scalebook.training.planner.time_to_target import TargetAnswer, TargetPoint
from scalebook.training.planner.updates_to_target import refuse_unknown
from scalebook.training.pricing.profile import profile_mapping, read_profile

PROFILE = read_profile({"gradient": "1 s", "batch_size": 10, "push": 0, "pull": 0, "server": 0})
REQUEST = PlanRequest(profile_mapping(PROFILE), "", [1, 2], ["async"], [1], ["own"])


@pytest.fixture(autouse=True)
def _short_plays(monkeypatch: pytest.MonkeyPatch) -> None:
    """How exact a play is, test_play says."""
    monkeypatch.setattr(play, "LEAST", 100)
    monkeypatch.setattr(play, "LEAST", 50)


@pytest.fixture
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace(tmp_path_factory.mktemp("workspace")).create()


def prepared(workspace: Workspace, request: PlanRequest) -> QuestionFolder:
    """As `start` leaves it to the process."""
    asked = QuestionFolder(workspace, request)
    asked.folder.mkdir(parents=True)
    records.save(asked.folder / "request.json", request)
    return asked


def test_a_model_is_split_if_that_is_asked(workspace: Workspace) -> None:
    layers = [{"name": "a", "forward": "3 ms", "output": "1 MB", "parameters": "4 MB"}] * 4
    known = profile_mapping(read_profile({"gradient": "40 ms", "batch_size": 8, "parameters": "16 MB",
                                     "copy_bandwidth": "10 GB/s", "layers": layers}))  # fmt: skip
    asked = prepared(workspace, replace(REQUEST, profile=known, networks=["10gbe"], split=4))
    assert planner_process.main([str(asked.folder)]) == 0
    found = asked.answer()
    assert found is not None
    (splits,) = found.splits
    assert (splits.workers, splits.network) == (4, "10gbe")
    assert splits.points
    unlayered = prepared(workspace, replace(REQUEST, split=4))
    assert planner_process.main([str(unlayered.folder)]) == 2
    failure = unlayered.failure()
    assert failure is not None
    assert failure.key == "profile.layers"
    with pytest.raises(ConfigError, match=r"--split: is 1. Use a number from 2 to 512"):
        replace(REQUEST, split=1).question()


def test_the_process_answers_and_whoever_asks_the_same_finds_it(workspace: Workspace) -> None:
    asked = prepared(workspace, REQUEST)
    assert planner_process.main([str(asked.folder)]) == 0
    found = QuestionFolder(workspace, REQUEST).answer()
    assert found is not None
    assert [(point.workers, point.samples_per_s) for point in found.curves[0].points] == [(1, 10.0), (2, 20.0)]
    assert QuestionFolder(workspace, replace(REQUEST, workers=[1, 2, 4])).answer() is None
    assert QuestionFolder(workspace, replace(REQUEST, seed=1)).answer() is None
    told = records.load(asked.folder / "progress.json", PlanProgress)
    assert told is not None
    assert told.whole > 2


def test_what_another_engine_has_played_is_no_answer(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = QuestionFolder(workspace, replace(REQUEST, metric="val/loss", target=0.5))
    found = TargetAnswer("val/loss", 0.5, "async", "own", 1, [TargetPoint(1, 10.0, 2.0)], ["f" * 32])
    asked.keep_answer(PROFILE, answer(PROFILE, asked.request.question()))
    asked.keep_target(PROFILE, found)
    assert asked.answer() is not None
    assert asked.target_answer() == found
    monkeypatch.setattr(asking, "engine_version", lambda: "another")
    assert asked.answer() is None
    assert asked.target_answer() is None


def test_the_version_follows_the_code_that_plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asking.engine_version() == asking.engine_version.__wrapped__()
    for name in ("engine", "planner"):
        shutil.copytree(asking.PLANNING.parent / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(asking, "ENGINE", tmp_path / "engine")
    monkeypatch.setattr(asking, "PLANNING", tmp_path / "planner")
    assert asking.engine_version.__wrapped__() == asking.engine_version()
    with next((tmp_path / "engine" / "sim").glob("*.py")).open("a") as file:
        file.write("# another engine\n")
    assert asking.engine_version.__wrapped__() != asking.engine_version()


def test_a_mistake_is_told_by_key_and_remedy(workspace: Workspace) -> None:
    asked = prepared(workspace, replace(REQUEST, rules=["asink"]))
    assert planner_process.main([str(asked.folder)]) == 2
    failure = asked.failure()
    assert failure is not None
    assert (failure.key, failure.message) == ("--strategies", "there is no rule 'asink'")
    with pytest.raises(ConfigError, match="--strategies: there is no rule"):
        asked.start()


@pytest.mark.parametrize(("change", "key"), [({"rules": []}, "--strategies"), ({"networks": []}, "--links")])
def test_an_empty_choice_is_refused(change: dict[str, list[str]], key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}: is empty. Choose at least one"):
        replace(REQUEST, **change).question()  # type: ignore[arg-type]


def test_a_process_works_until_it_is_stopped(workspace: Workspace) -> None:
    asked = QuestionFolder(workspace, REQUEST)
    assert asked.running() is None
    asked.start()
    assert asked.running() is not None
    first = records.load(asked.folder / "process.json", ProcessId)
    asked.start()
    assert records.load(asked.folder / "process.json", ProcessId) == first, "one at a time"
    asked.stop()
    deadline = time.monotonic() + 10
    while asked.running() is not None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert asked.failure() is None
    assert asked.answer() is None
    asked.stop()  # nobody is there


def test_a_planted_record_has_nobody_ended(workspace: Workspace) -> None:
    asked = QuestionFolder(workspace, REQUEST)
    asked.folder.mkdir(parents=True)
    (asked.folder / "log.txt").touch()
    with subprocess.Popen(["sleep", "60"]) as victim:
        records.save(asked.folder / "process.json", ProcessId.of(victim.pid))
        assert asked.running() is None
        asked.stop()
        with pytest.raises(subprocess.TimeoutExpired):
            victim.wait(0.2)
        victim.kill()


def test_old_answers_make_room(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "KEPT", 1)
    answers = workspace.cache / "plans" / "answers"
    answers.mkdir(parents=True)
    for age, name in ((200, "older"), (100, "newer")):
        (answers / f"{name}.json").write_text("{}", encoding="utf-8")
        then = time.time() - age
        os.utime(answers / f"{name}.json", (then, then))
    asked = QuestionFolder(workspace, REQUEST)
    asked.start()
    asked.stop()
    assert [path.name for path in answers.iterdir()] == ["newer.json"]


@pytest.mark.usefixtures("forked_descriptions")
def test_a_target_of_a_metric_that_the_model_does_not_record_is_refused_before_anything_runs(
    workspace: Workspace,
) -> None:
    asked = prepared(workspace, replace(REQUEST, metric="val/acuracy", target=0.5))
    records.put(asked.folder / "config.yaml", yaml.dump({"model": {"class_path": "MLPClassifier"}}).encode())
    assert planner_process.main([str(asked.folder)]) == 2
    failure = asked.failure()
    assert failure is not None
    assert (failure.key, failure.message) == ("--metric", "is val/acuracy, which MLPClassifier does not record")
    assert "val/accuracy" in failure.remedy
    assert asked.answer() is None


def test_a_run_that_has_validated_without_the_metric_is_given_up_with_the_names_there_are(tmp_path: Path) -> None:
    job = JobFolder(tmp_path)
    refuse_unknown(job, "val/iou")
    records.save(tmp_path / "progress.json", Progress(0.0, "training", metrics={"train/loss": 1.0, "ps/dropped": 0.0}))
    refuse_unknown(job, "val/iou")
    there = {"train/loss": 1.0, "val/dice": 0.5, "ps/dropped": 0.0}
    records.save(tmp_path / "progress.json", Progress(0.0, "training", metrics=there))
    refuse_unknown(job, "val/dice")
    refuse_unknown(job, "train/accuracy")
    with pytest.raises(NotMeasured, match=r"has not logged val/iou; while validating it logged val/dice\."):
        refuse_unknown(job, "val/iou")


def test_a_target_has_an_answer_of_its_own_beside_the_one_that_was_played(workspace: Workspace) -> None:
    asked = prepared(workspace, REQUEST)
    assert planner_process.main([str(asked.folder)]) == 0
    aimed = QuestionFolder(workspace, replace(REQUEST, metric="val/loss", target=0.5))
    assert aimed.answer() == asked.answer(), "played once"
    assert aimed.target_answer() is None
    found = TargetAnswer("val/loss", 0.5, "async", "own", 1, [TargetPoint(1, 10.0, 2.0)], ["f" * 32])
    aimed.keep_target(PROFILE, found)
    assert aimed.target_answer() == found
    assert asked.target_answer() is None
    assert QuestionFolder(workspace, replace(REQUEST, metric="val/loss", target=0.6)).target_answer() is None
