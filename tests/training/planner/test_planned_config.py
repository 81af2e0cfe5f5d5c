"""A config's strategy is planned as it is written: each argument is played, measured, indifferent, or refused."""

import inspect
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.engine.rules.clock_settings import Distribution, Link
from scalebook.training.engine.rules.exchanges import DPsgd, Sgp
from scalebook.training.engine.rules.peering import Peering
from scalebook.training.engine.rules.settings import Settings
from scalebook.training.engine.rules.topologies import Ring, Torus
from scalebook.training.engine.rules.update_rules import Async, Sync
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.lightning import AsyncPS, Peers
from scalebook.training.planner import play
from scalebook.training.planner.all_reduce import AllReduce
from scalebook.training.planner.answering import Setting, answer
from scalebook.training.planner.answers import Answer
from scalebook.training.planner.planned_config import (
    FOLLOWED,
    INDIFFERENT,
    MEASURED,
    PEERS_FOLLOWED,
    PEERS_INDIFFERENT,
    PlannedConfig,
    configured,
)
from scalebook.training.planner.planned_peers import PlannedPeers
from scalebook.training.planner.question import Question, label
from scalebook.training.pricing.layers import Layer
from scalebook.training.pricing.links import Network
from scalebook.training.pricing.profile import Profile, SharedNode

PROFILE = Profile(Distribution("gamma", 0.1, 0.3), 32, 1e6, 1e6, 0.03)
LOCAL = "scalebook.training.engine.rules.local_steps"
CLOCK = {"gradient_s": 0.05, "server_s": 0.01}
ARGUMENTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "rule": ({}, {"rule": "sync"}),
    "damping": ({}, {"damping": {"class_path": "DropAbove", "init_args": {"limit": 2}}}),
    "workers": ({}, {"workers": 3}),
    "warmup_updates": ({}, {"warmup_updates": 20}),
    "shards": ({}, {"shards": 4}),
    "host": ({}, {"host": "process"}),
    "buffers": ({}, {"buffers": "per_worker"}),
    "limits": ({}, {"limits": {"restarts": 2, "deadline_s": 30.0}}),
    "record": ({}, {"record": "drift"}),
    "clock": ({}, {"host": "virtual", "clock": CLOCK}),
    "push_codec": ({}, {"push_codec": "int8"}),
    "pull_codec": ({}, {"pull_codec": "bf16"}),
    "local": ({}, {"local": "local_sgd"}),
    "tls": ({}, {"tls": False}),
}
"""Of each argument of AsyncPS two strategies that differ in it."""


def config(arguments: dict[str, Any], **trainer: Any) -> dict[str, Any]:
    strategy = {"class_path": "scalebook.training.lightning.AsyncPS", "init_args": arguments}
    return {"trainer": {"strategy": strategy, "devices": 2, **trainer}}


def read(arguments: dict[str, Any], description: Description) -> tuple[PlannedConfig, Answer]:
    found = configured(Experiment.read(config(arguments), description))
    question = Question((1, 8), rules=(), shards=()).of(Experiment.read(config(arguments), description))
    question.check()
    question = replace(question, rules=question.rules[:1])  # its own; what stands beside it is the same for all
    return found, answer(found.declared(PROFILE), question)


def figures(found: Answer) -> list[Any]:
    return [curve.points for curve in found.curves]


@pytest.fixture(autouse=True)
def _short_plays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play, "LEAST", 100)
    monkeypatch.setattr(play, "LEAST", 50)


def test_every_argument_of_the_strategy_is_known_to_a_plan() -> None:
    arguments = set(inspect.signature(AsyncPS.__init__).parameters) - {"self"}
    assert arguments == set(ARGUMENTS)
    assert arguments == {*FOLLOWED, *MEASURED, *INDIFFERENT}
    assert not set(INDIFFERENT) & {*FOLLOWED, *MEASURED}


@pytest.mark.parametrize("name", sorted(ARGUMENTS))
def test_an_argument_is_played_or_measured_or_makes_no_difference(name: str, description: Description) -> None:
    before, after = (read(arguments, description) for arguments in ARGUMENTS[name])
    if name in MEASURED:
        assert before[0].measuring != after[0].measuring
    if name in set(FOLLOWED) - {"host"}:
        assert figures(before[1]) != figures(after[1])
    if name in INDIFFERENT:
        assert before[0].measuring == after[0].measuring
        assert figures(before[1]) == figures(after[1])


def test_a_warm_up_is_over_in_steady_state(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = Profile(0.1, 32, 1e6, 1e6, 0.03)
    plain = play.play(profile, 8, gradients=400).updates_per_s
    monkeypatch.setattr(play, "Settings", partial(Settings, warmup_updates=20))
    assert play.play(profile, 8, gradients=400).updates_per_s == pytest.approx(plain, rel=0.01)


def test_host_process_lets_nobody_wait_for_the_update(description: Description) -> None:
    """Under softsync who completes a round pulls before the servers have applied it: its gradients are staler."""
    strategies = ({"rule": "softsync", "host": host} for host in ("inline", "process"))
    inline, process = (read(arguments, description)[1].curves[0].points[-1] for arguments in strategies)
    assert process.staleness > inline.staleness


def test_the_config_is_what_is_asked_where_nothing_else_is(description: Description) -> None:
    written = config({"rule": "sync", "shards": 4, "local": "local_sgd", "push_codec": "int8", "workers": 3})
    question = Question((1, 8), rules=(), shards=()).of(Experiment.read(written, description))
    assert (question.rules[0], question.config_rule) == (Sync(), Sync())
    assert [rule.name for rule in question.rules] == ["sync", "ddp", "fsdp", "async"]
    assert (question.shards, question.workers, question.compared_at) == ((4,), [1, 3, 8], 3)
    assert question.beside == "local SGD, every 16, pushes int8"
    assert (question.coded, question.config_workers) == (True, 3)
    assert Question((1,), rules=(Async(),), shards=(2,)).of(Experiment.read(written, description)).rules == (Async(),)
    alone = Question((1, 8), rules=(), shards=()).of(Experiment.read({"trainer": {"strategy": "auto"}}, description))
    assert [rule.name for rule in alone.rules] == ["ddp", "fsdp", "sync", "async"]
    assert (alone.shards, alone.config_workers, alone.compared_at) == ((1,), 0, 8)


def ddp(**arguments: Any) -> dict[str, Any]:
    return {"trainer": {"strategy": {"class_path": "ddp", "init_args": arguments}, "devices": 4}}


def test_ddp_is_planned_as_ddp(description: Description) -> None:
    """With its buckets and its codec: halves are summed up on their way, frames of another go to all."""
    question = Question((1, 8), rules=(), shards=()).of(
        Experiment.read({"trainer": {"strategy": "ddp", "devices": 4}}, description)
    )
    assert (question.rules[0], question.config_rule) == (AllReduce(), AllReduce())
    assert [rule.name for rule in question.rules] == ["ddp", "fsdp", "sync", "async"]
    assert (question.workers, question.compared_at) == ([1, 4, 8], 4)
    found = answer(PROFILE, replace(question, rules=question.rules[:1]))
    assert [(curve.rule, curve.own) for curve in found.curves] == [("ddp", True)]
    points = [AllReduce().play(PROFILE, n, Network(), alone=True) for n in (1, 4, 8)]
    assert found.curves[0].points == [replace(point, memory=2e6) for point in points], "weights and gradients"
    halved = configured(Experiment.read(ddp(codec="bf16", bucket_cap_mb=50), description))
    assert (halved.aggregation, halved.measuring) == (AllReduce(bucket_mb=50, parts=2), {})
    framed = configured(Experiment.read(ddp(codec="int8"), description))
    assert (framed.aggregation, framed.measuring, framed.coded) == (
        AllReduce(gathers=True),
        {"push_codec": "int8"},
        True,
    )


def test_workers_of_one_machine_share_its_link(description: Description) -> None:
    written = config({}, num_nodes=2)
    question = Question((4,), rules=(), shards=(), networks=("10gbe",)).of(Experiment.read(written, description))
    assert question.node == 2
    measured = replace(PROFILE, cores=2, node=SharedNode(512, Link(1e-5, 1e9)), overlap=False)
    for rule in (AllReduce(), Async()):
        system = Setting.of(measured, question, rule, 1, "10gbe").profile
        assert (system.node, system.overlap) == (SharedNode(2, Link(1e-5, 1e9)), True)
    assert Setting.of(measured, question, Async(), 1, "own").profile == measured


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (ddp(ddp_comm_hook="x"), "init_args.ddp_comm_hook: cannot be planned"),
        (ddp(bucket_cap_mb=0), "init_args.bucket_cap_mb: is 0"),
        (config({"local": "significance"}), "init_args.local: is significance"),
        (
            config({"host": "virtual", "clock": {**CLOCK, "deaths": [{"worker": 0, "at_s": 1.0}]}}),
            "clock.deaths: is set",
        ),
        (config({"host": "virtual", "clock": {**CLOCK, "links": {1: {"latency_s": 1.0}}}}), "clock.links: gives"),
        (config({"host": "virtual", "clock": {**CLOCK, "group": {"machines": 8}}}), "clock.group: makes groups"),
        (
            config({"host": "virtual", "clock": {"gradient_s": {"kind": "recorded", "run": "a"}}}),
            "clock.gradient_s.kind: is recorded",
        ),
        (
            config({"host": "virtual", "clock": {**CLOCK, "link": {"latency_s": {"kind": "exponential", "mean": 1}}}}),
            "clock.link.latency_s: is a distribution",
        ),
        (config({"rule": {"class_path": "NoRule"}}), "init_args.rule: is"),
        (config({"rules": "sync"}), "init_args.rules: cannot be planned"),
        (config({}, num_nodes=2, devices=1), "trainer.num_nodes: is 2"),
    ],
)
def test_what_cannot_be_planned_is_refused(written: dict[str, Any], said: str, description: Description) -> None:
    with pytest.raises(ConfigError, match=r"^[^ ]+: ") as refused:
        Question((1, 8), rules=(), shards=()).of(Experiment.read(written, description)).check()
    assert said in str(refused.value)


def test_a_rule_that_does_not_go_with_the_rest_is_refused_by_key(description: Description) -> None:
    written = config({"host": "overlap"})
    question = Question((1, 8), rules=(Sync(),), shards=()).of(Experiment.read(written, description))
    with pytest.raises(ConfigError, match=r"init_args.host: is overlap, which has no effect with sync"):
        question.check()


def test_a_virtual_config_s_times_are_its_clock_s(description: Description) -> None:
    clock = {**CLOCK, "stragglers": {1: 2.0}, "server_link": {"bandwidth": 1e6}}
    found = configured(Experiment.read(config({"host": "virtual", "clock": clock, "shards": 2}), description))
    declared = found.declared(Profile(1.0, 32, 1e6, 1e6, 1.0, cores=2, slowdown={2: 1.5}, shard_shares={2: 0.7},
                                      layers=[Layer("a", 0.5, 0.5, 1e6, 1e6)]))  # fmt: skip
    assert declared.layers == (Layer("a", 0.025, 0.025, 1e6, 1e6),), "as the gradient that they make up"
    assert (declared.gradient_s, declared.cores, dict(declared.slowdown)) == (0.05, None, {})
    timing = declared.clock(2, 2)
    assert (timing.server_s, timing.server_link.bandwidth, timing.stragglers) == (0.01, 1e6, {1: 2.0})
    assert found.measuring == {}


def peers(**arguments: Any) -> dict[str, Any]:
    return {"trainer": {"strategy": {"class_path": "scalebook.training.lightning.Peers", "init_args": arguments},
                        "devices": 4}}  # fmt: skip


def test_every_argument_of_peers_is_known_to_a_plan() -> None:
    assert {*PEERS_FOLLOWED, *PEERS_INDIFFERENT} == {*inspect.signature(Peers.__init__).parameters} - {"self"}


def test_peers_are_planned_as_written(description: Description) -> None:
    plain = configured(Experiment.read(peers(), description))
    assert plain.aggregation == PlannedPeers(Peering(DPsgd(), Ring()))
    rare = configured(
        Experiment.read(
            peers(exchange={"class_path": "Sgp", "init_args": {"order": "combine_first"}}, topology="torus", every=3),
            description,
        )
    )
    assert rare.aggregation == PlannedPeers(Peering(Sgp("combine_first"), Torus(), every=3))
    assert rare.beside == "combine first, every 3"
    coded = configured(Experiment.read(peers(codec="int8"), description))
    assert (coded.coded, coded.measuring) == (True, {"push_codec": "int8"})
    question = Question((1, 4), rules=(), shards=()).of(Experiment.read(peers(), description))
    assert [label(rule) for rule in question.rules] == ["d_psgd:ring", "ddp", "fsdp", "sync", "async"]


def test_the_clock_of_virtual_peers_has_a_latency_at_both_ends(description: Description) -> None:
    clock = {"gradient_s": 0.05, "link": {"latency_s": 0.01, "bandwidth": 1e7}}
    plan = configured(Experiment.read(peers(workers=4, host="virtual", clock=clock), description))
    profile = plan.declared(PROFILE)
    (strategy,) = [plan.aggregation]
    assert isinstance(strategy, PlannedPeers)
    point = strategy.play(profile, 4, profile.network, alone=False)
    assert 1 / point.updates_per_s == pytest.approx(0.05 + 2 * 0.1 + 2 * 0.01)


def test_a_split_model_is_priced_by_another_option(description: Description) -> None:
    config = {"trainer": {"strategy": "scalebook.training.lightning.ModelParallel", "devices": 4}}
    with pytest.raises(ConfigError, match=r"trainer.strategy: splits a model.*strategy: auto.* --split 4"):
        configured(Experiment.read(config, description))


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"exchange": "ad_psgd", "codec": "int8"}, "init_args.codec: int8 sends the difference"),
        ({"codec": "topk"}, "init_args.mixing: is missing"),
        ({"momentum": "mixed"}, "init_args.momentum: cannot be planned. Remove it"),
        (
            {"host": "virtual", "clock": {"gradient_s": 0.1, "deaths": [{"worker": 1, "at_s": 3}]}},
            "clock.deaths: is set",
        ),
        (
            {"host": "virtual", "clock": {"gradient_s": 0.1, "group": {"machines": 8}}},
            "clock.group: makes groups of machines, but in a plan each worker is one machine. Remove it, and set",
        ),
    ],
)
def test_peers_that_cannot_be_planned_are_refused(written: Any, said: str, description: Description) -> None:
    with pytest.raises(ConfigError) as refused:
        configured(Experiment.read(peers(**written), description))
    assert said in str(refused.value)
