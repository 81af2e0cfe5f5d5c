"""Arguments in Python as a config writes them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from scalebook.training.engine.rules.clock_settings import ClockSettings, Death, Distribution, Link
from scalebook.training.engine.rules.codecs import Bf16, Int8, TopK
from scalebook.training.engine.rules.damping import DropAbove
from scalebook.training.engine.rules.local_steps import LocalSGD
from scalebook.training.engine.rules.run_limits import Limits, WorkerRange
from scalebook.training.engine.rules.update_rules import Bounded
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.validation import validate
from scalebook.training.lightning import DDP, AsyncPS

CLOCK: dict[str, Any] = {
    "gradient_s": {"kind": "gamma", "mean": 0.05, "cv": 0.2},
    "stragglers": {3: 2.0},
    "link": {"latency_s": {"kind": "exponential", "mean": 0.001}},
    "links": {"1": {"bandwidth": 1e9}},
    "deaths": ({"worker": 3, "at_s": 10, "back_s": 20},),
}


def made(**arguments: Any) -> AsyncPS:
    """As a script or hydra does it."""
    return AsyncPS(**arguments)


class Mine(Bounded):
    """A rule of somebody's own.

    Args:
        often: How often.
    """

    name = "mine"

    def __init__(self, often: int = 1) -> None:
        super().__init__(bound=often)


def test_a_mapping_is_the_object_that_a_config_would_make() -> None:
    strategy = made(
        rule={"class_path": "Bounded", "init_args": {"bound": 3}},
        damping={"class_path": "scalebook.training.engine.rules.DropAbove", "init_args": {"limit": 5}},
        workers={"min": 2, "max": 4},
        push_codec={"class_path": "TopK", "init_args": {"share": 0.1}},
        pull_codec={"class_path": "Int8"},
        limits={"restarts": 2},
    )
    asked = strategy.arguments
    assert (asked.server.rule, asked.server.damping) == (Bounded(3), DropAbove(5))
    assert (asked.server.push_codec, asked.server.pull_codec) == (TopK(share=0.1), Int8())
    assert asked.workers == WorkerRange(2, 4)
    assert asked.limits == Limits(restarts=2)
    assert made(local={"class_path": "LocalSGD", "init_args": {"every": 4}}).arguments.server.local == LocalSGD(4)
    codec: Any = {"class_path": "Bf16"}
    assert DDP(codec=codec).codec == Bf16()


def test_a_clock_with_all_that_it_may_have() -> None:
    strategy = made(host="virtual", workers=4, clock=MappingProxyType(CLOCK))
    assert strategy.arguments.server.clock == ClockSettings(
        gradient_s=Distribution("gamma", 0.05, 0.2),
        stragglers={3: 2.0},
        link=Link(latency_s=Distribution("exponential", 0.001)),
        links={1: Link(bandwidth=1e9)},
        deaths=[Death(3, 10, 20)],
    )


def test_a_rule_of_one_s_own_goes_by_its_path() -> None:
    rule = {"class_path": f"{__name__}.Mine", "init_args": {"often": 2}}
    assert made(rule=rule).arguments.server.rule == Mine(2)


@pytest.mark.parametrize(
    "wrong",
    [
        {"rule": {"class_path": "Boundd"}},
        {"rule": {"class_path": "Bounded", "init_args": {"bond": 3}}},
        {"rule": {"class_path": "Bounded", "init_args": {"bound": -3}}},
        {"rule": {"class_path": "Bounded", "init_args": {"bound": "x"}}},
        {"rule": {"class_path": "Bounded", "bound": 3}},
        {"rule": {"bound": 3}},
        {"damping": {"class_path": "Dropp"}},
        {"pull_codec": {"class_path": "Int"}},
        {"local": {"class_path": "LocalSGD", "init_args": {"every": 0}}},
        {"workers": {"min": 2}},
        {"workers": {"min": 4, "max": 2}},
        {"host": "virtual", "workers": 4, "clock": {"gradients": 1}},
        {"host": "virtual", "workers": 4, "clock": {"gradient_s": "x"}},
        {"host": "virtual", "workers": 4, "clock": {"gradient_s": {"kind": "gamma", "mea": 1}}},
        {"host": "virtual", "workers": 4, "clock": 0.05},
    ],
    ids=repr,
)
def test_what_is_wrong_is_said_as_of_a_config(wrong: Mapping[str, Any], description: Description) -> None:
    """By key, with the remedy, in the same words."""
    config = {
        "model": "MLPClassifier", "data": "Digits",
        "trainer": {"strategy": {"class_path": "AsyncPS", "init_args": dict(wrong)}, "num_nodes": 2},
    }  # fmt: skip
    of_config = [str(one) for one in validate(Experiment.read(config, description)) if one.severity == "error"]
    with pytest.raises(ValueError, match=r"^[a-z_.]+: ") as error:
        made(**dict(wrong))
    assert str(error.value) in [one.replace("trainer.strategy.init_args.", "") for one in of_config]


def test_a_module_that_is_not_there() -> None:
    with pytest.raises(ValueError, match=r"rule: names 'nowhere\.Mine', whose module cannot be imported"):
        made(rule={"class_path": "nowhere.Mine"})
