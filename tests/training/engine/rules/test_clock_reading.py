"""A clock as a config writes it: what it becomes, and how mistakes are named."""

from typing import Any

import pytest

from scalebook.training.engine.rules.clock_settings import (
    ClockSettings,
    Death,
    Distribution,
    Link,
    MachineGroup,
    read_clock,
)
from tests.training.engine.refusing import refused


def test_what_is_written_becomes_settings() -> None:
    written = {
        "gradient_s": {"kind": "gamma", "mean": 0.1, "cv": 0.3},
        "stragglers": {"3": 2},
        "server_s": 0.001,
        "link": {"latency_s": 0.0001, "bandwidth": 1.25e9},
        "links": {1: {"bandwidth": None}},
        "deaths": [{"worker": 2, "at_s": 1, "back_s": 2}],
    }
    assert read_clock(written, 4) == ClockSettings(
        Distribution("gamma", 0.1, 0.3), {3: 2}, 0.001, Link(0.0001, 1.25e9), {1: Link()}, Link(), [Death(2, 1, 2)]
    )


def test_a_group_is_read() -> None:
    written = {"machines": 8, "phases": 4, "messages": None, "bytes": 1e6, "bandwidth": 1.25e9, "latency_s": 1e-4}
    assert read_clock({"gradient_s": 1, "group": written}, 4).group == MachineGroup(8, 4, None, 1e6, 1.25e9, 1e-4)
    assert read_clock({"gradient_s": 1, "group": {"machines": 8}}, 4).group == MachineGroup(8, 2, 1, 0.0, None, 0.0)
    assert read_clock({"gradient_s": 1, "group": None}, 4) == read_clock({"gradient_s": 1}, 4)


def test_what_a_run_has_recorded_may_be_read_later() -> None:
    written = {"gradient_s": {"kind": "recorded", "run": "abc"}, "server_s": {"kind": "recorded", "run": "abc"}}
    part = Distribution("recorded", run="abc")
    found = read_clock(written, 4)
    assert isinstance(found.gradient_s, Distribution)
    assert (found.gradient_s.run, found.gradient_s.values) == ("abc", part.values)
    read = {"kind": "recorded", "run": "abc", "worker": 1, "mean": 0.5, "cv": 0.1, "values": [0.25, 0.75]}
    assert read_clock({"gradient_s": read}, 4).gradient_s == Distribution("recorded", 0.5, 0.1, "abc", 1, [0.25, 0.75])


@pytest.mark.parametrize(
    ("written", "mistake"),
    [
        (3, "wrong-type clock"),
        ({}, "missing clock.gradient_s"),
        ({"gradient_s": "fast"}, "wrong-type clock.gradient_s"),
        ({"gradient_s": True}, "wrong-type clock.gradient_s"),
        ({"gradient_s": {"mean": 1}}, "missing clock.gradient_s.kind"),
        (
            {"gradient_s": {"kind": "pareto", "mean": 1, "cv": 1}},
            "unknown-value clock.gradient_s.kind",
        ),
        ({"gradient_s": 1, "speed": 2}, "unknown-argument clock.speed"),
        ({"gradient_s": 1, "link": {"bandwidth": 0}}, "out-of-bounds clock.link.bandwidth"),
        ({"gradient_s": 1, "stragglers": [2]}, "wrong-type clock.stragglers"),
        ({"gradient_s": 1, "stragglers": {9: 2}}, "out-of-bounds clock.stragglers"),
        (
            {"gradient_s": 1, "group": 8},
            "wrong-type clock.group",
        ),
        ({"gradient_s": 1, "group": {}}, "missing clock.group.machines"),
        ({"gradient_s": 1, "group": {"machines": "8"}}, "wrong-type clock.group.machines"),
        ({"gradient_s": 1, "group": {"machines": 8.5}}, "wrong-type clock.group.machines"),
        (
            {"gradient_s": 1, "group": {"nodes": 8}},
            "unknown-argument clock.group.nodes",
        ),
        ({"gradient_s": 1, "deaths": {}}, "wrong-type clock.deaths"),
        ({"gradient_s": 1, "deaths": [{"worker": 1}]}, "missing clock.deaths.at_s"),
        ({"gradient_s": {"kind": "recorded"}}, "missing clock.gradient_s.run"),
        (
            {"gradient_s": {"kind": "recorded", "run": "abc", "mean": 1}},
            "contradiction clock.gradient_s.mean",
        ),
        (
            {"gradient_s": {"kind": "recorded", "run": "abc", "values": 3}},
            "wrong-type clock.gradient_s.values",
        ),
        ({"gradient_s": -1}, "out-of-bounds clock.gradient_s"),
    ],
)
def test_a_mistake_is_named_with_key_and_remedy(written: Any, mistake: str) -> None:
    with refused(mistake):
        read_clock(written, 4)
