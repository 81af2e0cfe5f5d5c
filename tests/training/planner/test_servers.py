"""Where servers sit, how many cores they have, and what software takes: each beside a formula."""

from dataclasses import replace
from typing import Any

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.engine.rules.clock_settings import Distribution, Link
from scalebook.training.engine.rules.update_rules import Async, Sync
from scalebook.training.planner.answer_words import CAUSES, system_words
from scalebook.training.planner.answering import Setting, find_causes, find_changes
from scalebook.training.pricing.links import OWN, Network
from scalebook.training.pricing.profile import Profile, SharedNode, Software, delayed_s, profile_mapping, read_profile

NBYTES, BANDWIDTH = 1e7, 1e8
LINKED = Profile(0.1, 32, NBYTES, NBYTES, network=Network(Link(0.0, BANDWIDTH), Link(0.0, BANDWIDTH)))
SERVING = Profile(0.1, 32, 1e6, 1e6, server_s=0.08)


def setting(profile: Profile, shards: int = 1, **other: Any) -> Setting:
    return Setting(profile, other.pop("rule", Async()), shards, OWN, 0, **other)


# --- servers on the workers' machines --------------------------------------------------------------------------------


@pytest.mark.parametrize(("workers", "shards", "share"), [(8, 8, 1 / 8), (8, 1, 1.0), (4, 8, 1 / 4), (16, 4, 1 / 4)])
def test_a_machine_s_link_carries_its_worker_s_and_its_shard_s_bytes(workers: int, shards: int, share: float) -> None:
    """Of each round of gradients come the others' pushes to its share, and what its own worker pulls from elsewhere."""
    profile = replace(LINKED, server_machines="workers", gradient_s=1e-3)
    comes = (workers - 1) * share * NBYTES + (1 - share) * NBYTES
    most = workers * BANDWIDTH / comes  # gradients a second of all, where that link is never idle
    clock = profile.clock(workers, shards)
    assert clock.server_link.bandwidth == pytest.approx(most * NBYTES)
    own = min(most, workers * BANDWIDTH / (2 * NBYTES))  # a worker pushes, then pulls over its own
    reached = setting(profile, shards).play(workers).updates_per_s
    assert reached <= 1.02 * own
    if most < 0.7 * own:
        assert reached == pytest.approx(most, rel=0.03)


def test_alone_with_its_server_a_worker_sends_nothing() -> None:
    profile = replace(LINKED, server_machines="workers")
    assert profile.clock(1).server_link.bandwidth is None
    several = replace(profile, node=SharedNode(4))
    assert several.clock(4, 2).server_link.bandwidth is None, "all four are on the machine with the servers"
    # of eight workers on two machines with a half each: four push there, and its four pull half from elsewhere
    assert several.clock(8, 2).server_link.bandwidth == pytest.approx(BANDWIDTH * 8 / (4 * 0.5 + 4 * 0.5))


def test_eight_servers_on_the_workers_machines_are_advised_where_one_link_is_the_limit() -> None:
    system = setting(LINKED)
    changes = {one.words: one.factor for one in find_changes(system, 8, system.play(8).samples_per_s)}
    there = replace(system, profile=replace(LINKED, server_machines="workers"), shards=8)
    factor = there.play(8).samples_per_s / system.play(8).samples_per_s
    assert changes["8 shards on the workers' nodes (server_machines: workers)"] == pytest.approx(factor)
    assert factor > 2
    assert "the servers run on the workers' machines" in system_words(there.profile)


# --- cores of the machine that serves --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cores", "shards", "served_s"), [(1, 1, 0.08), (1, 4, 0.08), (2, 4, 0.04), (8, 4, 0.02), (None, 4, 0.02)]
)
def test_serving_is_divided_by_the_cores_and_shards_beyond_them_take_turns(
    cores: int | None, shards: int, served_s: float
) -> None:
    profile = replace(SERVING, server_cores=cores)
    assert profile.clock(16, shards).server_s == pytest.approx(served_s)
    assert setting(profile, shards).play(16).updates_per_s == pytest.approx(1 / served_s, rel=0.01)


def test_on_the_workers_machines_cores_serve_the_shards_that_are_there() -> None:
    profile = replace(SERVING, server_machines="workers", server_cores=1)
    assert profile.clock(4, 8).server_s == pytest.approx(0.08 / 4), "two of eight shards, one after the other"
    assert profile.clock(8, 8).server_s == pytest.approx(0.08 / 8)


def test_cores_that_serve_are_named_as_the_limit() -> None:
    system = setting(replace(SERVING, server_cores=1), shards=4)
    causes = find_causes(system, 16, system.play(16).samples_per_s, 16 * 320.0)
    found = {cause.resources[0]: cause.factor for cause in causes}
    assert found["server cores"] == pytest.approx(4, rel=0.02)
    assert "cores" in CAUSES["server cores"]
    assert "; the servers have 1 core" in system_words(system.profile)


# --- software --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [Async(), Sync()])
def test_each_end_of_a_message_takes_its_time(rule: Any) -> None:
    """One worker: a gradient, a message each way with two ends, bytes at the slower of link and software."""
    profile = replace(LINKED, software=Software(0.01, BANDWIDTH / 2), server_s=0.02)
    one = setting(profile, rule=rule).play(1)
    assert 1 / one.updates_per_s == pytest.approx(0.1 + 0.02 + 4 * 0.01 + 2 * NBYTES / (BANDWIDTH / 2))
    faster = replace(profile, software=Software(0.01, 2 * BANDWIDTH))
    assert 1 / setting(faster).play(1).updates_per_s == pytest.approx(0.1 + 0.02 + 4 * 0.01 + 2 * NBYTES / BANDWIDTH)


def test_a_server_s_messages_are_the_limit_by_name() -> None:
    system = setting(replace(SERVING, server_s=0.0, software=Software(0.01)))
    reached = system.play(16)
    assert reached.updates_per_s == pytest.approx(1 / 0.02, rel=0.01), "it receives and sends for each gradient"
    (cause,) = find_causes(system, 16, reached.samples_per_s, 16 * 320.0)
    assert cause.resources == ["software"]
    assert cause.factor == pytest.approx(16 / 0.1 / 50, rel=0.02)
    assert "; sender and receiver each need 10 ms per message (" in system_words(system.profile)


def test_the_cores_that_serve_copy_what_all_workers_send() -> None:
    profile = replace(LINKED, software=Software(0.0, BANDWIDTH / 4), server_cores=2)
    assert profile.clock(8).server_link.bandwidth == pytest.approx(BANDWIDTH / 2)
    assert "copy at 25 MB/s" in system_words(profile)


def test_within_the_measured_machine_nothing_is_a_message() -> None:
    measured = replace(SERVING, cores=2, software=Software(0.01, 1e9))
    assert setting(measured).clock(2) == replace(setting(measured), profile=replace(measured, software=None)).clock(2)
    elsewhere = Setting(measured, Async(), 1, "10gbe", 0)
    assert elsewhere.clock(2).link.latency_s == pytest.approx(20e-6 + 0.01)


def test_a_draw_that_is_later_keeps_its_spread() -> None:
    drawn = delayed_s(Distribution("gamma", 0.1, 0.5), 0.1)
    assert isinstance(drawn, Distribution)
    assert (drawn.mean, drawn.cv) == pytest.approx((0.2, 0.25))
    assert delayed_s(Distribution("exponential", 0.1), 0.1) == Distribution("gamma", 0.2, 0.5)
    assert delayed_s(0.1, 0.1) == pytest.approx(0.2)


# --- in files --------------------------------------------------------------------------------------------------------

WRITTEN = {"gradient": 0.1, "parameters": "10 MB"}


def test_all_of_it_is_written_and_read() -> None:
    given = {
        **WRITTEN, "server_machines": "workers", "server_cores": 4,
        "software": {"message": "50 us", "bandwidth": "2 GB/s"},
    }  # fmt: skip
    profile = read_profile(given)
    assert (profile.server_machines, profile.server_cores) == ("workers", 4)
    assert profile.software == Software(pytest.approx(50e-6), 2e9)  # type: ignore[arg-type]  # compares as a float
    assert read_profile(profile_mapping(profile)) == profile


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ({"software": {"latency": 1}}, "profile.software.latency"),
        ({"software": 3}, "profile.software"),
        ({"software": {"bandwidth": 0}}, "profile.software.bandwidth"),
        ({"server_cores": 0}, "profile.server_cores"),
        ({"server_cores": 1.5}, "profile.server_cores"),
        ({"server_cores": 2, "server_machines": "each"}, "profile.server_cores"),
        ({"server_machines": "theirs"}, "profile.server_machines"),
    ],
)
def test_what_is_wrong_is_named(wrong: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_profile({**WRITTEN, **wrong})
    assert error.value.problem.key == key
