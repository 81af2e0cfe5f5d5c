"""Profiles and questions as a person writes them, and what is refused, by key and remedy."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files.yaml import load
from scalebook.training.engine.rules.clock_settings import Distribution, Link
from scalebook.training.engine.rules.update_rules import Async, Bounded, Softsync, Sync
from scalebook.training.planner.question import Question, label, numbers, rules
from scalebook.training.pricing.links import NETWORKS, Network
from scalebook.training.pricing.profile import Profile, load_profile, mean_s, profile_mapping, read_profile
from scalebook.training.pricing.quantities import format_quantity, quantity

WRITTEN = """
title: eight accelerators
gradient: {kind: lognormal, mean: 180 ms, cv: 0.1}
batch_size: 64
parameters: 100 MB
pull: 50 MB
copy_bandwidth: 20 GB/s
network: 10gbe
server_machines: each
stragglers: {3: 2}
"""


def test_a_profile_is_written_by_hand(tmp_path: Path) -> None:
    (path := tmp_path / "p.yaml").write_text(WRITTEN)
    profile = load_profile(path)
    assert profile == Profile(
        Distribution("lognormal", 0.18, 0.1), 64, 1e8, 5e7, 3 * 1e8 / 2e10, {3: 2.0}, None, NETWORKS["10gbe"], "each",
        title="eight accelerators",
    )  # fmt: skip
    assert read_profile(profile_mapping(profile)) == profile


def test_what_is_measured_is_read_back() -> None:
    profile = Profile(
        0.02, 32, 4, 4, 0.001, cores=2, network=Network(Link(0.1, 1e6)), shard_shares={2: 0.6}, sparse=True
    )
    assert read_profile(profile_mapping(profile)) == profile
    slowed = replace(profile, slowdown={2: 1.3})
    assert read_profile(profile_mapping(slowed)) == slowed


@pytest.mark.parametrize(
    ("cores", "workers", "factor"),
    [(None, 1, 1.0), (None, 2, 1.2), (None, 3, 1.5), (None, 4, 1.8), (None, 64, 1.8), (2, 64, 1.2)],
)
def test_workers_of_one_machine_slow_each_other_down(cores: int | None, workers: int, factor: float) -> None:
    given = Profile(Distribution("gamma", 0.1, 0.3), 1, 0, 0, 0.01, cores=cores, slowdown={2: 1.2, 4: 1.8})
    shared = given.shared_by(workers)
    assert mean_s(shared.gradient_s) == pytest.approx(0.1 * factor)
    assert isinstance(shared.gradient_s, Distribution)
    assert shared.gradient_s.cv == 0.3
    assert shared.server_s == pytest.approx(0.01 * factor)


def test_the_clock_of_a_profile() -> None:
    clock = read_profile(load(WRITTEN)).clock(8, shards=4)
    assert clock.gradient_s == Distribution("lognormal", 0.18, 0.1)
    assert clock.server_s == pytest.approx(3 * 1e8 / 2e10 / 4)
    assert clock.stragglers == {3: 2.0}
    assert clock.link.bandwidth == pytest.approx(0.94 * 1.25e9)
    assert clock.server_link.bandwidth == pytest.approx(4 * 0.94 * 1.25e9)
    assert read_profile(load(WRITTEN)).clock(2).stragglers == {}


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"gradient": None}, "profile.gradient"),
        ({"gradient": "180 parsecs"}, "profile.gradient"),
        ({"gradient": -1}, "profile.gradient"),
        ({"gradient": 0}, "profile.gradient"),
        ({"gradient": {"mean": "1 s", "kind": "cauchy", "cv": 1}}, "profile.gradient.kind"),
        ({"gradient": {"mean": "1 s"}}, "profile.gradient.cv"),
        ({"gradient": {"cv": 0.1}}, "profile.gradient.mean"),
        ({"batch_size": 0}, "profile.batch_size"),
        ({"batch_size": "many"}, "profile.batch_size"),
        ({"cores": 0}, "profile.cores"),
        ({"network": "20gbe"}, "profile.network"),
        ({"network": {"bandwidth": 0}}, "profile.network.bandwidth"),
        ({"network": {"speed": 1}}, "profile.network.speed"),
        ({"server_machines": "two"}, "profile.server_machines"),
        ({"server": "1 ms"}, "profile.copy_bandwidth"),
        ({"copy_bandwidth": 0}, "profile.copy_bandwidth"),
        ({"stragglers": {"3": 0}}, "profile.stragglers.3"),
        ({"stragglers": [3]}, "profile.stragglers"),
        ({"shard_shares": {"2": 1.5}}, "profile.shard_shares.2"),
        ({"sparse": "rows"}, "profile.sparse"),
        ({"slowdown": {"2": 0}}, "profile.slowdown.2"),
        ({"slowdown": {"1": 2}}, "profile.slowdown.1"),
        ({"gradent": 1}, "profile.gradent"),
    ],
)
def test_a_mistake_is_refused_by_its_key(change: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_profile({**load(WRITTEN), **change})
    assert refused.value.problem.key == key
    assert refused.value.problem.fix.endswith((".", "?"))


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"profile.gradient: is missing. Set it to the time"):
        read_profile({"parameters": 1})
    with pytest.raises(ConfigError, match=r"profile.push: is missing. Set parameters: 100 MB"):
        read_profile({"gradient": 1})
    with pytest.raises(ConfigError, match=r"--profile: there is no file"):
        load_profile(tmp_path / "none.yaml")


def test_units() -> None:
    assert quantity("10 Gbit/s", "B/s", "k") == 1.25e9
    assert quantity("25us", "s", "k") == pytest.approx(25e-6)
    assert quantity("1.5 GiB", "B", "k") == 1.5 * 2**30
    assert [format_quantity(value, "s") for value in (0.18, 2e-5, 3.0)] == ["180 ms", "20 us", "3 s"]
    assert [format_quantity(value, "B") for value in (2.68e6, 12.0)] == ["2.68 MB", "12 B"]
    assert format_quantity(1.175e9, "B/s") == "1.18 GB/s"


def test_rules_of_a_command_line() -> None:
    made = rules("async,bounded:2,sync,sync:1,softsync:4")
    assert made == (Async(), Bounded(2), Sync(), Sync(1), Softsync(4))
    assert [label(rule) for rule in made] == ["async", "bounded:2", "sync", "sync:1", "softsync:4"]
    assert rules(",".join(label(rule) for rule in made)) == made
    for text in ("asink", "bounded:x", "bounded:0", "async:5"):
        with pytest.raises(ConfigError, match="--strategies"):
            rules(text)


def test_what_cannot_be_asked() -> None:
    Question(workers=numbers("1,2,512", "--workers"), networks=["own", "nvlink"]).check()
    for question, option in (
        (Question(workers=[]), "--workers"),
        (Question(workers=[1, 513]), "--workers"),
        (Question(workers=[2, 1]), "--workers"),
        (Question(shards=[0]), "--shards"),
        (Question(networks=["20gbe"]), "--links"),
    ):
        with pytest.raises(ConfigError) as refused:
            question.check()
        assert refused.value.problem.key == option
    with pytest.raises(ConfigError, match="--workers: is 'a'"):
        numbers("a", "--workers")
