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
    ("written", "said"),
    [
        (3, "clock: is 3, not a mapping of names. Write it as {gradient_s: 0.05}."),
        ({}, "clock.gradient_s: is missing. Write it"),
        ({"gradient_s": "fast"}, "clock.gradient_s: is 'fast', not a number. Write one"),
        ({"gradient_s": True}, "clock.gradient_s: is True, not a number."),
        ({"gradient_s": {"mean": 1}}, "clock.gradient_s.kind: is missing."),
        (
            {"gradient_s": {"kind": "pareto", "mean": 1, "cv": 1}},
            "clock.gradient_s.kind: 'pareto' is unknown. Use one",
        ),
        ({"gradient_s": 1, "speed": 2}, "clock.speed: unknown key. Known: deaths, gradient_s, group, link,"),
        ({"gradient_s": 1, "link": {"bandwidth": 0}}, "clock.link.bandwidth: 0"),
        ({"gradient_s": 1, "stragglers": [2]}, "clock.stragglers: is [2], not a mapping of worker numbers."),
        ({"gradient_s": 1, "stragglers": {9: 2}}, "clock.stragglers: worker 9 does not exist."),
        (
            {"gradient_s": 1, "group": 8},
            "clock.group: is 8, not a mapping of names. Write it as {machines: 8, phases: 4}.",
        ),
        ({"gradient_s": 1, "group": {}}, "clock.group.machines: is missing. Write it, or leave group out."),
        ({"gradient_s": 1, "group": {"machines": "8"}}, "clock.group.machines: is '8', not a number."),
        ({"gradient_s": 1, "group": {"machines": 8.5}}, "clock.group.machines: is 8.5, not a whole number."),
        (
            {"gradient_s": 1, "group": {"nodes": 8}},
            "clock.group.nodes: unknown key. Known: bandwidth, bytes, latency_s,",
        ),
        ({"gradient_s": 1, "deaths": {}}, "clock.deaths: is {}, not a list."),
        ({"gradient_s": 1, "deaths": [{"worker": 1}]}, "clock.deaths.at_s: is missing."),
        ({"gradient_s": {"kind": "recorded"}}, "clock.gradient_s.run: is missing. Write the id of the run"),
        (
            {"gradient_s": {"kind": "recorded", "run": "abc", "mean": 1}},
            "clock.gradient_s.mean: the recorded run has its own mean. Remove mean and cv.",
        ),
        (
            {"gradient_s": {"kind": "recorded", "run": "abc", "values": 3}},
            "clock.gradient_s.values: is 3, not a list. Write one, as [0.05].",
        ),
        ({"gradient_s": -1}, "clock.gradient_s: -1 is less than 0. Use 0 or more."),
    ],
)
def test_a_mistake_is_named_with_key_and_remedy(written: Any, said: str) -> None:
    with pytest.raises(ValueError, match=r"trainer\.strategy\.init_args\.") as raised:
        read_clock(written, 4)
    assert said in str(raised.value)
