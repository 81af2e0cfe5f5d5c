from dataclasses import replace

import pytest

from scalebook.training.base.files import yaml
from scalebook.training.experiments.description import ClassInfo, Description, Field
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.search.definition import search_problems
from tests.training.experiments.searches import CONFIG, problems


@pytest.mark.parametrize(
    ("space", "code"),
    [
        (
            "{model.hiden: {int: [1, 2]}}",
            "unknown-key",
        ),
        ("{model.hidden.x: {int: [1, 2]}}", "unknown-key"),
        ("{hidden: {int: [1, 2]}}", "unknown-key"),
        ("{batchsize: {int: [1, 2]}}", "unknown-key"),
        ("{trainer.max_epoch: {int: [1, 2]}}", "unknown-key"),
        ("{trainer.strategy.rule.bound: {int: [1, 2]}}", "unknown-key"),
        ("{seed_everything: {int: [1, 9]}}", "not-searchable"),
        ("{lr_scheduler.gamma: {uniform: [0, 1]}}", "unknown-class"),
        (
            "{model.hidden: {int: [0, 64]}}",
            "out-of-bounds",
        ),
        ("{model.hidden: {uniform: [8, 64]}}", "wrong-type"),
        ("{model.hidden: {log_uniform: [8, 64]}}", "wrong-type"),
        ("{model.hidden: {values: [8, wide]}}", "wrong-type"),
        ("{model.dropout: {uniform: [0, 2]}}", "out-of-bounds"),
        (
            "{model.activation: {int: [1, 2]}}",
            "wrong-type",
        ),
        (
            "{model.activation: {values: [relu, sine]}}",
            "unknown-value",
        ),
        (
            "{data.normalize: {int: [0, 1]}}",
            "wrong-type",
        ),
        ("{model: {int: [0, 1]}}", "wrong-type"),
        (
            "{optimizer: {values: [SGD, Adamm]}}",
            "unknown-class",
        ),
        (
            "{batch_size: {uniform: [8, 16]}}",
            "wrong-type",
        ),
        ("{batch_size: {int: [0, 16]}}", "out-of-bounds"),
        ("{learning_rate: {uniform: [0, 1]}}", "out-of-bounds"),
        ("{workers: {values: [0, 1]}}", "out-of-bounds"),
        ("{workers: {int: [1, 2000]}}", "out-of-bounds"),
        ("{strategy: {int: [1, 2]}}", "wrong-type"),
        (
            "{strategy: {values: [single, asynch]}}",
            "unknown-class",
        ),
        (
            "{strategy: {values: [{class_path: AsyncPS, init_args: {rul: 1}}]}}",
            "unknown-argument",
        ),
    ],
)
def test_a_dimension_that_the_config_does_not_take(space: str, code: str, description: Description) -> None:
    (problem,) = problems(space, description)
    assert problem.key == f"space.{next(iter(yaml.load(space)))}"
    assert (problem.code, problem.severity) == (code, "error")


@pytest.mark.parametrize(
    ("space", "key"),
    [
        ("{batch_size: {grid: [8]}, data.init_args.batch_size: {grid: [8]}}", "space.data.init_args.batch_size"),
        ("{learning_rate: {grid: [1]}, optimizer.lr: {grid: [1]}}", "space.optimizer.lr"),
        ("{workers: {grid: [2]}, trainer.devices: {grid: [2]}}", "space.trainer.devices"),
        ("{strategy: {values: [ddp]}, trainer.strategy: {values: [ddp]}}", "space.trainer.strategy"),
    ],
)
def test_two_dimensions_of_one_field(space: str, key: str, description: Description) -> None:
    (problem,) = problems(space, description, trainer={"devices": 2, "strategy": "ddp"})
    assert (problem.key, problem.fix) == (key, "Remove one of them.")


def test_a_field_that_some_strategies_have_is_no_mistake(description: Description) -> None:
    space = "{strategy: {values: [ddp, async, bounded]}, trainer.strategy.rule.bound: {int: [1, 4]}}"
    (warning,) = problems(space, description, trainer={"devices": 2})
    assert (
        str(warning)
        == "space.trainer.strategy.rule.bound: has no effect with ddp, async. You do not need to change anything."
    )
    assert warning.severity == "warning"
    (wrong,) = problems(space.replace("[1, 4]", "[0, 4]"), description, trainer={"devices": 2})
    assert (wrong.severity, wrong.key) == ("error", "space.trainer.strategy.rule.bound")


def test_models_and_data_without_what_a_handle_needs(description: Description) -> None:
    own = ClassInfo("my.Own", "Own", fields=[Field("learning_rate", "float", default=0.1)], own_optimizer=True)
    none = ClassInfo("my.None", "Nothing", own_optimizer=True)
    odd = ClassInfo("my.Odd", "Odd")
    known = replace(description, models=[own, none], data=[odd])
    rate = {"space": {"learning_rate": {"log_uniform": [0.1, 1]}}, "objective": "val/loss"}
    assert search_problems(rate, Experiment.read({"model": "Own", "data": "Odd"}, known), known) == []
    (problem,) = search_problems(rate, Experiment.read({"model": "Nothing", "data": "Odd"}, known), known)
    assert str(problem).startswith("space.learning_rate: cannot be set, because Nothing has its own optimizer and no")
    momentum = {"space": {"optimizer.lr": {"uniform": [0, 1]}}, "objective": "val/loss"}
    (problem,) = search_problems(momentum, Experiment.read({"model": "Own", "data": "Odd"}, known), known)
    assert problem.message == "has no effect, because Own has its own configure_optimizers"
    batch = {"space": {"batch_size": {"grid": [1, 2]}}, "objective": "val/loss"}
    (problem,) = search_problems(batch, Experiment.read({"model": "Own", "data": "Odd"}, known), known)
    assert (
        str(problem) == "space.batch_size: cannot be set, because Odd has no argument batch_size. Choose another field."
    )


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (
            "{workers: {values: [1, 2]}}",
            "needs a fixed number of workers, but the base config has {min, max}",
        ),
        ("{trainer.devices: {values: [1, 2]}}", "2 nodes with 1 workers each make 2 workers."),
        ("{strategy: {values: [async, sync]}}", "sync cannot run: trainer.strategy.init_args.workers is {min, max}"),
    ],
)  # fmt: skip
def test_machines_that_may_join_leave_no_choice_of_workers(space: str, said: str, description: Description) -> None:
    elastic = {"class_path": "AsyncPS", "init_args": {"workers": {"min": 2, "max": 4}}}
    trainer = {"strategy": elastic, "devices": 2, "num_nodes": 2, "max_epochs": 1}
    body = {"config": {**CONFIG, "trainer": trainer}, "objective": "val/loss", "space": yaml.load(space)}
    clustered = replace(description, clustered=True)
    found = [str(one) for one in search_problems(body, None, clustered) if one.severity == "error"]
    assert len(found) == 1
    assert said in found[0]


def test_machines_that_may_join_leave_every_other_choice(description: Description) -> None:
    elastic = {"class_path": "AsyncPS", "init_args": {"workers": {"min": 2, "max": 4}}}
    trainer = {"strategy": elastic, "devices": 2, "num_nodes": 2, "max_epochs": 1}
    space = yaml.load("{learning_rate: {log_uniform: [0.01, 1]}, strategy: {values: [async, bounded]}}")
    body = {"config": {**CONFIG, "trainer": trainer}, "objective": "val/loss", "space": space}
    assert list(search_problems(body, None, replace(description, clustered=True))) == []
