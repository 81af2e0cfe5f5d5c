from typing import Any

import pytest

from scalebook.training.config.complete import complete
from scalebook.training.config.description import Description
from scalebook.training.config.identity import base_content, config_hash
from scalebook.training.config.renamed import first_paths, renamed
from scalebook.training.config.validate import validate

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
    return renamed(value) if isinstance(value, str) else value


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("training.models.PixelCNN", "scalebook.training.models.PixelCNN"),
        ("training.ps.rules.Sync", "scalebook.training.ps.policy.rules.Sync"),
        ("training.callbacks.rate_range.RateRange", "scalebook.training.tuning.rate_range.RateRange"),
    ],
)
def test_a_path_of_before_and_now(before: str, after: str) -> None:
    assert (renamed(before), renamed(after)) == (after, after)
    assert first_paths([{"class_path": after}]) == first_paths([{"class_path": before}]) == [{"class_path": before}]


@pytest.mark.parametrize("path", ["torch.optim.SGD", "trainings.models.A", "mine.training.models.B", "PixelCNN"])
def test_what_is_not_ours_stays(path: str) -> None:
    assert renamed(path) == path
    assert first_paths({"class_path": path}) == {"class_path": path}


def test_a_config_of_before_is_the_config_of_now(description: Description) -> None:
    """It is right, it runs the same classes, and its results are not stale."""
    assert not list(validate(BEFORE, description))
    assert complete(BEFORE, description) == complete(now(BEFORE), description)
    assert complete(BEFORE, description)["model"]["class_path"] == "scalebook.training.models.MLPClassifier"
    rule = complete(BEFORE, description)["trainer"]["strategy"]["init_args"]["rule"]
    assert rule["class_path"] == "scalebook.training.ps.policy.rules.Bounded"
    assert base_content(BEFORE, description) == base_content(now(BEFORE), description)


def test_hashes_stay_for_ever(description: Description) -> None:
    assert config_hash({"trainer": BEFORE["trainer"]}, description) == "1893459cb045"
    assert config_hash({"trainer": now(BEFORE["trainer"])}, description) == "1893459cb045"


@pytest.mark.parametrize(("before", "now"), [("averaged", None), ("per_worker", "per_worker"), ("frozen", "frozen")])
def test_an_argument_of_before_is_read_with_a_warning(before: str, now: str | None, description: Description) -> None:
    def config(**args: Any) -> dict[str, Any]:
        strategy = {"class_path": "AsyncPS", "init_args": {"workers": 2, **args}}
        return {"model": "MLPClassifier", "data": "Digits", "trainer": {"strategy": strategy, "max_epochs": 1}}

    old, new = config(batch_norm=before), config(buffers=now)
    (problem,) = validate(old, description)
    assert (problem.key, problem.severity) == ("trainer.strategy.init_args.batch_norm", "warning")
    assert problem.message == "is now called buffers; the next version will reject the old name"
    assert not list(validate(new, description))
    assert complete(old, description) == complete(new, description)
    assert "batch_norm" not in complete(old, description)["trainer"]["strategy"]["init_args"]


def test_both_names_are_one_too_many(description: Description) -> None:
    args = {"workers": 2, "buffers": "averaged", "batch_norm": "averaged"}
    strategy = {"class_path": "AsyncPS", "init_args": args}
    config = {"model": "MLPClassifier", "data": "Digits", "trainer": {"strategy": strategy, "max_epochs": 1}}
    assert any(one.key.endswith(".batch_norm") and one.severity == "error" for one in validate(config, description))
