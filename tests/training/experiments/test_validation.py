from typing import Any

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.identity import config_hash
from scalebook.training.experiments.validation import require, validate

GOOD: dict[str, Any] = {
    "model": "PixelCNN",
    "data": {"class_path": "scalebook.training.zoo.data.Digits", "init_args": {"batch_size": 8}},
}


def errors(config: Any, description: Description) -> list[str]:
    return [str(problem) for problem in validate(Experiment.read(config, description)) if problem.severity == "error"]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"trainer": {"strategy": "ddp", "devices": 2, "max_epochs": 3, "gradient_clip_val": 1}},
        {"trainer": {"strategy": {"class_path": "AsyncPS", "init_args": {"workers": None}}, "precision": "bf16-mixed"}},
        {"trainer": {"strategy": "async_ps", "callbacks": [{"class_path": "x.Y"}], "limit_train_batches": 0.5}},
        {
            "optimizer": {"class_path": "SGD", "init_args": {"lr": 1, "momentum": 0.9}},
            "lr_scheduler": {"class_path": "StepLR", "init_args": {"step_size": 3}},
        },
        {"seed_everything": True, "threads": 2, "optimizer": None, "ckpt_path": None},
    ],
)
def test_what_lightning_would_take_has_no_problem(more: dict[str, Any], description: Description) -> None:
    assert (
        validate(Experiment.read({**GOOD, **more}, description), typed=True) == []
    )  # on a command line: the queue has one machine


@pytest.mark.parametrize(
    ("config", "key", "message", "fix", "code"),
    [
        (
            {"optimiser": {}},
            "optimiser",
            "is not a key of a config",
            "Did you mean `optimizer`?",
            "unknown-key",
        ),
        (
            {"trainer": {"max_epoch": 1}},
            "trainer.max_epoch",
            "is not an argument",
            "Did you mean `max_epochs`?",
            "unknown-argument",
        ),
        (
            {"trainer": {"devices": 0}},
            "trainer.devices",
            "0 is out of bounds",
            "Use a whole number of at least 1.",
            "out-of-bounds",
        ),
        (
            {"trainer": {"max_epochs": "3"}},
            "trainer.max_epochs",
            "'3' is not a whole number",
            "Use a whole number of at least -1.",
            "wrong-type",
        ),
        (
            {"trainer": {"strategy": "dpp"}},
            "trainer.strategy",
            "unknown strategy 'dpp'",
            "Did you mean `ddp`?",
            "unknown-class",
        ),
        (
            {"trainer": 3},
            "trainer",
            "is 3, not a mapping",
            "Use one `name: value` per line.",
            "wrong-type",
        ),
        (
            {"model": {"class_path": "PixelCNN", "init_args": {"layer": 1}}},
            "model.init_args.layer",
            "is not an argument",
            "Did you mean `layers`?",
            "unknown-argument",
        ),
        (
            {"model": {"class_path": "PixelCNN", "init_args": {"layers": 0}}},
            "model.init_args.layers",
            "0 is out of bounds",
            "Use a whole number above 0.",
            "out-of-bounds",
        ),
        (
            {"model": {"class_path": "PixelCNN", "layers": 2}},
            "model.layers",
            "does not belong next to class_path",
            "Move it into model.init_args.",
            "misplaced-key",
        ),
        (
            {"model": {"layers": 2}},
            "model",
            "is {'layers': 2}, not a class",
            "Use model: {class_path: ..., init_args: {...}}.",
            "wrong-type",
        ),
        (
            {"model": "MLPClasifier"},
            "model",
            "unknown model 'MLPClasifier'",
            "Did you mean `MLPClassifier`?",
            "unknown-class",
        ),
        (
            {"data": {"class_path": "Digits", "init_args": {"val_fraction": 1.0}}},
            "data.init_args.val_fraction",
            "1.0 is out of bounds",
            "Use a number above 0 and below 1.",
            "out-of-bounds",
        ),
        (
            {"data": {"class_path": "Digits", "init_args": {"normalize": 1}}},
            "data.init_args.normalize",
            "1 is not true or false",
            "Use true or false.",
            "wrong-type",
        ),
        (
            {"data": None},
            "data",
            "is missing",
            "Use one of these data sets: Dataset, Digits, Docstrings, Messages, PhotoPatches.",
            "missing",
        ),
        (
            {"optimizer": "Adem"},
            "optimizer",
            "unknown optimizer 'Adem'",
            "Did you mean `Adam`?",
            "unknown-class",
        ),
        (
            {"lr_scheduler": "StepLR"},
            "lr_scheduler.init_args.step_size",
            "is missing",
            "Use a whole number of at least 1.",
            "missing",
        ),
        (
            {"seed_everything": -1},
            "seed_everything",
            "-1 is out of bounds",
            "Use a whole number of at least 0 and at most 4294967295.",
            "out-of-bounds",
        ),
        (
            {"threads": 1.5},
            "threads",
            "1.5 is not a whole number",
            "Use a whole number of at least 1 and at most 1024.",
            "wrong-type",
        ),
        (
            {"repeats": 3},
            "repeats",
            "does not belong in the config",
            "Put it next to `config:` in the cell.",
            "misplaced-key",
        ),
        (
            {"trainer": {"precision": "8"}},
            "trainer.precision",
            "'8' is not one of 32-true, bf16-mixed, 16-mixed, bf16-true, 16-true, 64-true",
            "",
            "unknown-value",
        ),
    ],
)
def test_a_mistake_names_key_and_remedy(
    config: dict[str, Any], key: str, message: str, fix: str, code: str, description: Description
) -> None:
    (found,) = [one for one in validate(Experiment.read({**GOOD, **config}, description)) if one.severity == "error"]
    assert (found.code, found.key, found.message, found.fix[: len(fix)]) == (code, key, message, fix)
    assert found.fix.endswith(("?", "."))


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ({"trainer": {"sync_batchnorm": True}}, "trainer.sync_batchnorm"),
        ({"trainer": {"num_nodes": 2}}, "trainer.num_nodes"),
    ],
)
def test_what_asynchronous_workers_cannot_do(more: dict[str, Any], key: str, description: Description) -> None:
    with_strategy = {**GOOD, **more, "trainer": {**more.get("trainer", {}), "strategy": "AsyncPS", "devices": 2}}
    assert [problem.key for problem in validate(Experiment.read(with_strategy, description))] == [key]
    assert (
        validate(Experiment.read({**GOOD, **more}, description), typed=True) == []
    )  # on a command line: the queue has one machine


def test_what_they_can_do_again(description: Description) -> None:
    """Scaled losses, and schedules that follow the validation."""
    scheduler = {"class_path": "ReduceLROnPlateau", "init_args": {"monitor": "val/loss"}}
    trainer = {"strategy": "AsyncPS", "devices": 2, "precision": "16-mixed"}
    assert validate(Experiment.read({**GOOD, "trainer": trainer, "lr_scheduler": scheduler}, description)) == []
    alone = {"strategy": "AsyncPS", "devices": 1, "sync_batchnorm": True}
    assert validate(Experiment.read({**GOOD, "trainer": alone}, description)) == []


def test_all_mistakes_are_found_at_once(description: Description) -> None:
    found = errors({"trainer": {"devices": 0, "max_epoch": 1}, "model": "x", "foo": 1}, description)
    assert [one.split(":")[0] for one in found] == ["foo", "trainer.devices", "trainer.max_epoch", "model", "data"]


def test_a_part_of_a_config_may_lack_what_the_whole_needs(description: Description) -> None:
    part = {"lr_scheduler": "StepLR", "trainer": {"max_epochs": 1}}
    assert validate(Experiment.read(part, description), partial=True) == []
    assert len(validate(Experiment.read(part, description))) == 3


def test_settings_without_effect_are_warnings(description: Description) -> None:
    strategy = {"class_path": "AsyncPS", "init_args": {"workers": 4}}
    config = {**GOOD, "trainer": {"strategy": strategy, "devices": 2, "accelerator": "cpu"}}
    (problem,) = validate(Experiment.read(config, description))
    assert (problem.key, problem.severity) == ("trainer.devices", "warning")
    require(Experiment.read(config, description))


def test_require_raises_the_first_error(description: Description) -> None:
    with pytest.raises(ConfigError, match=r"^foo: is not a key"):
        require(Experiment.read({**GOOD, "foo": 1, "bar": 2}, description))


@pytest.mark.parametrize("config", [None, [], "model", 3])
def test_what_is_no_mapping_is_one_problem(config: object, description: Description) -> None:
    assert len(validate(Experiment.read(config, description))) == 1


@pytest.mark.parametrize("told", ["torch", "xla", "", "simple "])
def test_a_profiler_that_is_none_is_said(told: str, description: Description) -> None:
    (found,) = [one for one in errors({**GOOD, "trainer": {"profiler": told}}, description) if "profiler" in one]
    assert "which is not a profiler" in found


@pytest.mark.parametrize("told", ["simple", "advanced", "pytorch", {"class_path": "x.Y"}])
def test_a_profiler_of_lightnings_or_a_class_is_one(told: object, description: Description) -> None:
    assert not errors({**GOOD, "trainer": {"profiler": told}}, description)


ONE = "Set trainer.devices: 1 (init_args.workers of AsyncPS can be larger), or remove gpu_share."
BOUNDS = "is out of bounds. Use a number of at least 0.01 and at most 1."


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"gpu_share": 0.25}, []),
        ({"gpu_share": 0}, [f"gpu_share: 0 {BOUNDS}"]),
        ({"gpu_share": 2}, [f"gpu_share: 2 {BOUNDS}"]),
        (
            {"gpu_share": 0.25, "trainer": {"accelerator": "cpu"}},
            ["gpu_share: is 0.25, but the run uses no GPU. Remove it, or set accelerator: auto."],
        ),
        (
            {"gpu_share": 0.25, "trainer": {"strategy": "ddp", "devices": 2}},
            [f"gpu_share: is 0.25, but the run uses 2 GPUs, and only runs on one GPU can share a GPU. {ONE}"],
        ),
        ({"gpu_share": 0.25, "trainer": {"strategy": {"class_path": "AsyncPS", "init_args": {"workers": 4}}}}, []),
    ],
)  # fmt: skip
def test_a_share_is_of_one_gpu(more: dict[str, Any], expected: list[str], description: Description) -> None:
    assert errors({**GOOD, **more}, description) == expected


def test_a_share_that_is_all_says_nothing(description: Description) -> None:
    assert config_hash(Experiment.read({**GOOD, "gpu_share": 1}, description)) == config_hash(
        Experiment.read(GOOD, description)
    )
    assert config_hash(Experiment.read({**GOOD, "gpu_share": 0.5}, description)) != config_hash(
        Experiment.read(GOOD, description)
    )
    assert Experiment({**GOOD, "gpu_share": 0.5}, description).to_run()["gpu_share"] == 0.5
