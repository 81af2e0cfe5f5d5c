import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files import yaml
from scalebook.training.base.files.yaml_flow import flow
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.search.definition import (
    Objective,
    RateRule,
    SearchSpec,
    body_of,
    identity,
    read_search,
    search_problems,
)
from scalebook.training.experiments.search.keys import KEYS
from scalebook.training.experiments.search.space import Dimension
from tests.examples import examples
from tests.training.experiments.searches import CONFIG, WHOLE, bodies, ranges
from tests.training.notebook.strategies import values

GOOD = {"config": CONFIG, "objective": "val/loss", "space": {"model.hidden": {"int": [8, 64]}}}


def test_everything_that_a_search_may_say(description: Description) -> None:
    body = yaml.load(WHOLE)
    spec = read_search({**body, "experiment": "mlp"}, Experiment.read(CONFIG, description), description)
    assert spec == SearchSpec(
        experiment=Experiment(CONFIG, description),
        space=(
            Dimension("batch_size", "powers_of_two", 16, 1024),
            Dimension("learning_rate", "log_uniform", 0.001, 1.0),
            Dimension("workers", "values", choices=(1, 2)),
            Dimension("strategy", "values", choices=("single", "ddp", "async")),
            Dimension("model.hidden", "int", 16, 256, log=True),
        ),
        objectives=(Objective("val/loss", True), Objective("seconds", True)),
        target=0.3,
        scaling="strong",
        sampler="tpe",
        sampler_seed=3,
        pruner="none",
        trials=100,
        seeds=2,
        minutes=30,
        seconds_per_trial=20,
        exclusive=True,
        failures=5,
        memory_mb=500,
        points=({"batch_size": 64, "learning_rate": 0.1, "model.hidden": 32},),
        storage="postgresql://somebody@localhost/studies",
        preset="batch-size",
        rate=RateRule("linear", 256, 1.0),
    )
    assert set(body) | {"experiment", "config"} == set(KEYS)
    assert spec.dimension("workers").choices == (1, 2)
    with pytest.raises(KeyError):
        spec.dimension("hidden")


def test_what_is_left_out(description: Description) -> None:
    spec = read_search({"space": {"model.hidden": {"int": [8, 64]}}}, Experiment.read(CONFIG, description), description)
    assert spec == SearchSpec(
        Experiment(CONFIG, description), (Dimension("model.hidden", "int", 8, 64),), (Objective("val/accuracy", False),)
    )


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("val/accuracy", (("val/accuracy", False),)),
        ("seconds", (("seconds", True),)),
        ({"val/loss": "max"}, (("val/loss", False),)),
        (["val/bits_per_dim", "samples"], (("val/bits_per_dim", True), ("samples", True))),
    ],
)
def test_which_way_an_objective_goes(told: Any, expected: Any, description: Description) -> None:
    spec = read_search({**GOOD, "objective": told}, None, description)
    assert tuple((one.name, one.lower) for one in spec.objectives) == expected


def test_a_body_written_from_a_search_reads_as_the_search(description: Description) -> None:
    @examples(60)
    @given(bodies())
    def check(body: dict[str, Any]) -> None:
        assert [one for one in search_problems(body, None, description) if one.severity == "error"] == []
        spec = read_search(body, None, description)
        again = body_of(spec)
        assert read_search(again, None, description) == spec
        assert read_search(yaml.load(flow(again)), None, description) == spec  # as a file holds it

    check()


PATHS = (
    *(
        "batch_size",
        "learning_rate",
        "workers",
        "strategy",
        "model.hidden",
        "model",
        "optimizer.lr",
        "trainer.strategy",
    ),
    *("trainer.strategy.rule.bound", "trainer.devices", "threads", "init_args", "", ".", "data.x.y", "model."),
)
anything = st.dictionaries(st.sampled_from([*KEYS, "spac"]), values, max_size=6)
spaces = st.dictionaries(st.sampled_from(PATHS), ranges | values, max_size=4)
bases = st.sampled_from([None, CONFIG, {"model": 3}, {"trainer": {"strategy": None}}, {"trainer": 3, "data": []}])


def test_no_body_is_too_strange_to_be_checked(description: Description) -> None:
    @examples(150)
    @given(anything, spaces | st.none(), bases)
    def check(body: dict[str, Any], space: Any, base: dict[str, Any] | None) -> None:
        told = body if space is None else {**body, "space": space}
        before = copy.deepcopy((told, base))
        problems = search_problems(told, Experiment.read(base, description), description, cores=2)
        assert all(one.message and one.key for one in problems)
        assert (told, base) == before
        if any(one.severity == "error" for one in problems):
            with pytest.raises(ConfigError):
                read_search(told, Experiment.read(base, description), description)
        else:
            assert isinstance(read_search(told, Experiment.read(base, description), description), SearchSpec)

    check()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"scalin": "weak"}, "scalin: is not a key of a search. Did you mean `scaling`?"),
        ({"scaling": "srong"}, "scaling: is 'srong'. Did you mean `strong`?"),
        ({"sampler": "tpee"}, "sampler: is 'tpee'. Did you mean `tpe`?"),
        ({"sampler": "cma-es"}, "sampler: is cma-es, which no longer exists. Set sampler: gp."),
        ({"sampler": {"cma-es": {"seed": 2}}}, "sampler: is cma-es, which no longer exists. Set sampler: gp."),
        ({"sampler": {"tpe": {"sed": 1}}}, "sampler: has settings {'sed': 1}. Use tpe, or {tpe: {seed: 1}}."),
        ({"sampler": {"tpe": {"seed": -1}}}, "sampler: has settings {'seed': -1}."),
        ({"pruner": "hyper"}, "pruner: is 'hyper'."),
        ({"trials": 0}, "trials: is 0. Use a whole number from 1 to 100000, or remove it."),
        ({"seeds": 1.5}, "seeds: is 1.5."),
        ({"minutes": -1}, "minutes: is -1. Use a number above 0, or remove it."),
        ({"seconds_per_trial": 1.5}, "seconds_per_trial: is 1.5. Use whole seconds"),
        ({"exclusive": "yes"}, "exclusive: is 'yes'. Use true, false or all."),
        ({"memory_mb": 0}, "memory_mb: is 0."),
        ({"preset": 3}, "preset: is 3."),
        ({"storage": "redis://x"}, "storage: is 'redis://x'. Use an address, such as postgresql://"),
        ({"objective": []}, "objective: is []."),
        (
            {"objective": ["a", "b", "c"]},
            "objective: names 3 objectives. Use one objective, or two different objectives.",
        ),
        ({"objective": ["a", "a"]}, "objective: names 2 objectives."),
        ({"objective": {"a": "up"}}, "objective: is {'a': 'up'}."),
        ({"target": "low"}, "target: is 'low'."),
        (
            {"target": 0.3, "objective": "seconds"},
            "target: needs a metric as the first objective, but the first objective is seconds.",
        ),
        ({"points": {"a": 1}}, "points: is {'a': 1}."),
        ({"points": [3]}, "points.0: is 3."),
        ({"points": [{"hidden": 8}]}, "points.0.hidden: is not a dimension of the space."),
        ({"points": [{"model.hidden": 7}]}, "points.0.model.hidden: is 7. Use a value from the space: 8 ... 64."),
        ({"space": None}, "space: is missing."),
        ({"experiment": "mlp"}, "config: conflicts with `experiment:`. Remove one of them."),
        ({"config": None}, "experiment: is missing. Set it to the experiment to start from, or set `config:`."),
        ({"config": None, "experiment": "mlp"}, "experiment: is mlp, which is not an experiment here."),
        ({"config": "base.yaml"}, "config: is 'base.yaml', a path."),
        ({"config": 3}, "config: is 3, not a mapping."),
        ({"config": {**CONFIG, "trainer": {"devices": 0}}}, "config.trainer.devices: 0 is out of bounds."),
    ],
)
def test_a_mistake_names_its_key_and_what_to_write(change: dict[str, Any], said: str, description: Description) -> None:
    body = {**GOOD, **change}
    found = [str(one) for one in search_problems(body, None, description) if one.severity == "error"]
    assert any(one.startswith(said) for one in found), found
    with pytest.raises(ConfigError):
        read_search(body, None, description)


def test_a_mistake_in_the_experiment_is_said_once(description: Description) -> None:
    base = {**CONFIG, "trainer": {"devices": 0, "max_epoch": 1}}
    (problem,) = search_problems(
        {**GOOD, "config": None, "experiment": "mlp"}, Experiment.read(base, description), description
    )
    assert problem.key == "experiment"
    assert problem.message.startswith("has a mistake: trainer.devices: 0 is")


def test_all_mistakes_are_found_at_once(description: Description) -> None:
    space = {"batch_size": {"powers_of_two": [16, 96]}, "model.hiden": {"int": [1, 2]}, "workers": {"values": [0]}}
    body = {**GOOD, "space": space, "trials": -1, "sampler": "x", "foo": 1}
    found = {one.key for one in search_problems(body, None, description)}
    assert found == {"foo", "trials", "sampler", "space.batch_size", "space.model.hiden", "space.workers"}


BUDGET = {
    "trials": 7, "seeds": 3, "sampler": {"random": {"seed": 9}}, "pruner": "median", "minutes": 3, "failures": 2,
    "points": [{"model.hidden": 9}], "storage": "sqlite:///x.db", "exclusive": True, "preset": "strategies",
}  # fmt: skip


@pytest.mark.parametrize("key", BUDGET)
def test_a_study_goes_on_under_another_budget(key: str, description: Description) -> None:
    def found(body: dict[str, Any]) -> str:
        return identity(read_search(body, None, description))

    assert found({**GOOD, key: BUDGET[key]}) == found(GOOD)


@pytest.mark.parametrize(
    "same",
    [
        {"config": {key: CONFIG[key] for key in reversed(CONFIG)}},
        {
            "config": {
                **CONFIG,
                "model": {"class_path": "scalebook.training.zoo.models.MLPClassifier", "init_args": {"hidden": 128}},
            }
        },
        {
            "config": {
                **CONFIG,
                "optimizer": {"class_path": "torch.optim.SGD", "init_args": {"momentum": 0.0, "lr": 0.1}},
            }
        },
        {"config": {**CONFIG, "trainer": {"max_epochs": 3, "strategy": None}, "seed_everything": 1, "threads": 1}},
        {"space": {"model.init_args.hidden": {"int": [8, 64], "step": 1}}},
        {"space": {"model.hidden": {"int": [8.0, 64]}}},
        {"scaling": "strong", "objective": ["val/loss"]},
    ],
)
def test_the_same_search_in_other_words(same: dict[str, Any], description: Description) -> None:
    body = {**GOOD, **same}
    spec, other = read_search(GOOD, None, description), read_search(body, None, description)
    assert identity(other) == identity(spec)


@pytest.mark.parametrize(
    "other",
    [
        {"config": {**CONFIG, "trainer": {"max_epochs": 4}}},
        {"config": {**CONFIG, "seed_everything": 2}},
        {"config": {**CONFIG, "model": "ConvClassifier"}, "space": {"model.width": {"int": [8, 64]}}},
        {"space": {"model.hidden": {"int": [8, 65]}}},
        {"space": {"model.hidden": {"int": [8, 64], "log": True}}},
        {"space": {"model.hidden": {"int": [8, 64]}, "model.layers": {"int": [1, 2]}}},
        {"objective": "val/accuracy"},
        {"objective": {"val/loss": "max"}},
        {"scaling": "weak"},
        {"seconds_per_trial": 5},
        {"memory_mb": 100},
    ],
)
def test_another_search_is_another_study(other: dict[str, Any], description: Description) -> None:
    spec = read_search(GOOD, None, description)
    found = identity(read_search({**GOOD, **other}, None, description))
    assert found != identity(spec)
    assert len(found) == 12


def test_a_rule_for_the_learning_rate_and_the_order_of_categories_matter(description: Description) -> None:
    def found(space: dict[str, Any]) -> str:
        return identity(read_search({**GOOD, "space": space}, None, description))

    rate = {"log_uniform": [0.1, 1.0]}
    assert found({"learning_rate": rate}) != found({"learning_rate": {**rate, "rule": "linear"}})
    assert found({"strategy": {"values": ["ddp", "single"]}}) != found({"strategy": {"values": ["single", "ddp"]}})
    one = {"learning_rate": rate, "batch_size": {"grid": [8, 16]}}
    assert found(one) == found({key: one[key] for key in reversed(one)})


def test_the_identity_of_a_search_is_the_same_for_ever(description: Description) -> None:
    """Stored with every study: another one would begin it anew."""
    assert identity(read_search(yaml.load(WHOLE), Experiment.read(CONFIG, description), description)) == "410bfe28e539"
