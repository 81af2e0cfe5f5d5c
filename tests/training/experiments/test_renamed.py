from pathlib import Path
from typing import Any

import pytest

from scalebook.training.base.files import yaml
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.identity import config_hash
from scalebook.training.experiments.renamed import FIRST_PATHS, first_paths, renewed
from scalebook.training.experiments.search.definition import read_search
from scalebook.training.experiments.search.point import resolve
from scalebook.training.experiments.validate import require, validate
from scalebook.training.jobs.job_folder import JobFolder
from scalebook.training.old_paths import path_of_now

BEFORE: dict[str, Any] = {
    "model": {"class_path": "training.models.MLPClassifier", "init_args": {"hidden": 16}},
    "data": "training.data.Digits",
    "optimizer": {"class_path": "training.optimizers.LARS", "init_args": {"lr": 0.1}},
    "trainer": {
        "devices": 2,
        "strategy": {
            "class_path": "training.strategies.AsyncPS",
            "init_args": {
                "rule": {"class_path": "training.ps.rules.Bounded", "init_args": {"bound": 3}},
                "damping": {"class_path": "training.ps.damping.DropAbove", "init_args": {"limit": 2}},
            },
        },
    },
}


def now(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: now(item) for key, item in value.items()}
    if not isinstance(value, str):
        return value
    of_0_1 = next((new + value.removeprefix(old) for new, old in FIRST_PATHS.items() if value.startswith(old)), value)
    return path_of_now(of_0_1)


@pytest.mark.parametrize("path", ["torch.optim.SGD", "trainings.models.A", "mine.training.models.B", "PixelCNN"])
def test_what_is_not_ours_stays(path: str) -> None:
    assert first_paths({"class_path": path}) == {"class_path": path}


def test_hashes_stay_for_ever(description: Description) -> None:
    assert config_hash({"trainer": now(BEFORE["trainer"])}, description) == "1893459cb045"


def strategy(**arguments: Any) -> dict[str, Any]:
    return {"trainer": {"devices": 2, "strategy": {"class_path": "AsyncPS", "init_args": arguments}}}


OLDER: list[tuple[dict[str, Any], dict[str, Any], list[str]]] = [
    (
        {"host": "process", "overlap": True, "restarts": 2, "deadline_s": 60, "pull_codec": "topk", "pull_delta": True},
        {"host": "overlap", "limits": {"restarts": 2, "deadline_s": 60}, "pull_codec": "topk"},
        [
            "Write host: overlap.",
            "Write limits: {restarts: 2}.",
            "Write limits: {deadline_s: 60, restarts: 2}.",
            "Remove it.",
        ],
    ),
    ({"trace": True}, {"record": "updates"}, ["Write record: updates."]),
    ({"norms": True, "trace": False}, {"record": "drift"}, ["Write record: drift.", "Remove it."]),
    ({"overlap": False, "pull_delta": False}, {}, ["Remove it.", "Remove it."]),
    ({"limits": {"restarts": 1}, "restarts": 1}, {"limits": {"restarts": 1}}, ["Write limits: {restarts: 1}."]),
]


@pytest.mark.parametrize(("written", "now", "remedies"), OLDER)
def test_spellings_of_version_0_1_are_read_with_a_warning(
    written: dict[str, Any], now: dict[str, Any], remedies: list[str], description: Description
) -> None:
    config, said = renewed(strategy(**written))
    assert config == strategy(**now)
    assert [problem.remedy for problem in said] == remedies
    assert {problem.severity for problem in said} == {"warning"}
    assert renewed(config) == (config, [])


@pytest.mark.parametrize(
    ("written", "key", "remedy"),
    [
        ({"overlap": True}, "overlap", "Write host: overlap, or remove it."),
        ({"pull_codec": "int8", "pull_delta": False}, "pull_delta", "Remove it: int8 sends differences of parameters"),
        ({"pull_codec": "bf16", "pull_delta": True}, "pull_delta", "Remove it, or write pull_codec: int8: bf16 sends"),
        (
            {"limits": {"restarts": 1}, "restarts": 3},
            "restarts",
            "Remove it, or limits.restarts: they have different values.",
        ),
        ({"pull_codec": {"class_path": "mine.Own"}, "pull_delta": True}, "pull_delta", "Remove it: the codec's own"),
        ({"norms": True, "trace": True}, "trace", "Write record: updates, or record: drift"),
    ],
)
def test_what_would_be_something_else_is_refused(
    written: dict[str, Any], key: str, remedy: str, description: Description
) -> None:
    config, _ = renewed(strategy(**written))
    (found,) = [
        problem
        for problem in validate(Experiment.read(config, description))
        if problem.key.endswith(f"init_args.{key}")
    ]
    assert (found.severity, found.remedy[: len(remedy)]) == ("error", remedy)


@pytest.mark.parametrize(
    ("arguments", "before"),
    [
        ({"host": "overlap", "limits": {"restarts": 2, "deadline_s": 60}, "pull_codec": "topk"}, "e9d16d74648f"),
        ({"record": "updates"}, "6d13427b80e2"),
        ({"record": "drift"}, "73a5edf21af8"),
    ],
)
def test_hashes_are_those_of_the_older_spelling(
    arguments: dict[str, Any], before: str, description: Description
) -> None:
    assert config_hash(strategy(**arguments), description) == before


def test_pulls_by_int8_are_not_what_they_were(description: Description) -> None:
    """They were whole parameters, and are differences."""
    assert config_hash(strategy(pull_codec="int8"), description) != "671db2f69bcf"


def test_a_config_of_a_job_that_version_0_1_made_is_read_as_today(tmp_path: Path) -> None:
    job = JobFolder(tmp_path)
    old: dict[str, Any] = {
        "model": "scalebook.training.models.MLPClassifier",
        "data": {"class_path": "scalebook.training.data.Digits"},
        "trainer": {
            "strategy": {
                "class_path": "scalebook.training.strategies.AsyncPS",
                "init_args": {
                    "rule": {"class_path": "scalebook.training.ps.policy.rules.Async"},
                    "host": "process",
                    "overlap": True,
                },
            },
            "callbacks": ["scalebook.training.callbacks.RateRange", {"class_path": "mine.training.models.B"}],
        },
    }  # fmt: skip
    job.config.write_text(yaml.dump(old), encoding="utf-8")
    assert job.content() == {
        "model": "scalebook.training.zoo.models.MLPClassifier",
        "data": {"class_path": "scalebook.training.zoo.data.Digits"},
        "trainer": {
            "strategy": {
                "class_path": "scalebook.training.lightning.AsyncPS",
                "init_args": {
                    "rule": {"class_path": "scalebook.training.engine.rules.update_rules.Async"},
                    "host": "overlap",
                },
            },
            "callbacks": ["scalebook.training.lightning.callbacks.RateRange", {"class_path": "mine.training.models.B"}],
        },
    }
    assert yaml.load(job.config.read_text(encoding="utf-8")) == old, "signed, and left as it is"


def test_texts_that_only_begin_like_an_old_name_stay() -> None:
    config = {
        "model": {"init_args": {"note": "scalebook.training.models. Read it.", "more": "scalebook.training.models"}}
    }
    assert renewed(config) == (config, [])


def test_the_trials_of_a_search_of_version_0_1(description: Description) -> None:
    base = {
        "model": {"class_path": "scalebook.training.models.MLPClassifier"},
        "data": {"class_path": "scalebook.training.data.Digits"},
        "optimizer": {"class_path": "SGD", "init_args": {"lr": 0.1}},
    }
    peers: dict[str, Any] = {"class_path": "scalebook.training.strategies.Peers", "init_args": {"workers": 2}}
    servers: dict[str, Any] = {
        "class_path": "scalebook.training.strategies.AsyncPS",
        "init_args": {"workers": 2, "host": "process", "overlap": True},
    }
    space = {"strategy": {"values": ["single", peers, servers]}, "model.hidden": {"values": [8, 16]}}
    space["workers"] = {"grid": [2, 4]}
    spec = read_search({"config": base, "objective": "val/loss", "space": space}, None, description)
    assert spec.dimension("strategy").choices == ("single", peers, servers), "the study has them by these names"
    for value, arguments in ((peers, {"workers": 2}), (servers, {"workers": 2, "host": "overlap"})):
        config = resolve(spec, {"strategy": value, "model.hidden": 8, "workers": 2}).written
        require(Experiment.read(config, description))
        name = value["class_path"].rpartition(".")[2]
        assert config["trainer"]["strategy"] == {
            "class_path": f"scalebook.training.lightning.{name}", "init_args": arguments
        }  # fmt: skip
        assert config["model"]["class_path"] == "scalebook.training.zoo.models.MLPClassifier"
