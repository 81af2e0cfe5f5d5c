"""Time to a target: updates needed, times the seconds of an update."""

import pytest

from scalebook.training.cli.plan_chart import target_figure
from scalebook.training.engine.rules.clock_settings import Distribution, Link, read_clock
from scalebook.training.engine.rules.update_rules import Bounded
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.lightning import Peers
from scalebook.training.planner.answering import Setting
from scalebook.training.planner.answers import Range, Reliability
from scalebook.training.planner.question import rules
from scalebook.training.planner.time_to_target import TargetAnswer, TargetPoint, target_lines, target_words
from scalebook.training.planner.updates_to_target import simulated
from scalebook.training.pricing.links import OWN, Network
from scalebook.training.pricing.profile import Profile
from tests.training.experiments.searches import NO_CLASSES

EXACT = Reliability("async", Range(0.8, 1.25), None, 9, [])
FOUND = TargetAnswer(
    "val/accuracy", 0.9, "async", OWN, 1,
    [TargetPoint(1, 1000, 10.0), TargetPoint(4, 1200, 40.0), TargetPoint(16, 6000, 60.0), TargetPoint(32, None, 60.0)],
    [],
)  # fmt: skip


def test_time_is_the_product_of_both_factors() -> None:
    assert [point.seconds for point in FOUND.points] == [100.0, 30.0, 100.0, None]
    head, columns, *rows, words = target_lines(FOUND, EXACT)
    assert head == "Time until val/accuracy reaches 0.9 under async, with the config's learning rate:"
    assert columns.split() == ["workers", "updates", "needed", "updates/s", "time", "x", "one", "worker"]
    assert [row.split() for row in rows] == [
        ["1", "1,000", "10", "2", "min", "1.00"],
        ["4", "1,200", "40", "30", "s", "0.30"],
        ["16", "6,000", "60", "2", "min", "1.00"],
        ["32", "not", "reached", "60"],
    ]
    assert words == (
        "4 workers reach the target soonest, in 24 s to 38 s. Compared with 1 worker, they make 4 times as many "
        "updates per second (2.6 to 6.2), and need 1.2 times as many updates."
    )


def test_who_is_alone_there_and_who_is_not() -> None:
    alone = TargetAnswer("val/loss", 0.9, "async", OWN, 1, FOUND.points[:1], [])
    assert target_words(alone, EXACT) == "1 worker reaches the target soonest, in 80 s to 2 min."
    none = TargetAnswer("val/loss", 0.9, "async", OWN, 1, FOUND.points[3:], [])
    assert target_words(none, EXACT).startswith("The target was not reached with any number of workers.")
    assert target_figure(none) is None


def test_virtual_workers_train_on_the_clock_that_is_played() -> None:
    profile = Profile(
        Distribution("gamma", 0.1, 0.3), 32, 1e6, 1e6, 0.01, {3: 2.0}, network=Network(Link(1e-4, 1e8), Link(0.0, 1e9))
    )
    setting = Setting(profile, Bounded(2), 2, OWN, 0)
    config = simulated(Experiment({"trainer": {"devices": 8, "max_epochs": 2}}, NO_CLASSES), 4, setting).written
    arguments = config["trainer"]["strategy"]["init_args"]
    assert config["trainer"]["devices"] == 1
    assert config["trainer"]["max_epochs"] == 2
    assert (arguments["workers"], arguments["shards"], arguments["host"]) == (4, 2, "virtual")
    assert arguments["rule"]["init_args"] == {"bound": 2}
    assert read_clock(arguments["clock"], 4) == setting.clock(4)
    with pytest.raises(ValueError, match="stragglers"):
        read_clock(arguments["clock"], 3)


def test_a_target_of_peers_is_reached_by_virtual_peers() -> None:
    """On the clock that a plan has: a latency for each end of a message."""
    network = Network(Link(0.02, 1e7))
    profile = Profile(0.1, 32, 1e6, 1e6, network=network)
    (strategy,) = rules("sgp:torus")
    setting = Setting(profile, strategy, 1, "own", 0)
    made = simulated(Experiment({"trainer": {"devices": 2, "strategy": "ddp"}}, NO_CLASSES), 8, setting).written[
        "trainer"
    ]
    assert (made["devices"], made["strategy"]["class_path"]) == (1, "scalebook.training.lightning.Peers")
    arguments = made["strategy"]["init_args"]
    assert (arguments["workers"], arguments["host"], arguments["clock"]["link"]["latency_s"]) == (8, "virtual", 0.01)
    assert [arguments[name]["class_path"].rpartition(".")[2] for name in ("exchange", "topology")] == ["Sgp", "Torus"]
    Peers(
        workers=8,
        exchange=arguments["exchange"],
        topology=arguments["topology"],
        host="virtual",
        clock=arguments["clock"],
    )
