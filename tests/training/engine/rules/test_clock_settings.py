"""The declared clock refuses what no run can have, by key and remedy."""

import math
from typing import Any

import pytest

from scalebook.training.engine.rules.clock_settings import ClockSettings, Death, Distribution, Link, MachineGroup
from tests.training.engine.refusing import refused


@pytest.mark.parametrize(
    ("given", "mistake"),
    [
        ({"gradient_s": -1.0}, "out-of-bounds clock.gradient_s"),
        ({"gradient_s": math.nan}, "out-of-bounds clock.gradient_s"),
        ({"gradient_s": math.inf}, "out-of-bounds clock.gradient_s"),
        ({"server_s": -0.1}, "out-of-bounds clock.server_s"),
        ({"stragglers": {4: 2.0}}, "out-of-bounds clock.stragglers"),
        ({"stragglers": {3: 0.0}}, "out-of-bounds clock.stragglers.3"),
        ({"link": Link(bandwidth=0.0)}, "out-of-bounds clock.link.bandwidth"),
        ({"link": Link(latency_s=-1e-3)}, "out-of-bounds clock.link.latency_s"),
        ({"server_link": Link(bandwidth=-1.0)}, "out-of-bounds clock.server_link.bandwidth"),
        ({"links": {-1: Link()}}, "out-of-bounds clock.links"),
        ({"links": {2: Link(bandwidth=0.0)}}, "out-of-bounds clock.links.2.bandwidth"),
        ({"link": Link(bandwidth=Distribution("gamma", 0.0, 0.1))}, "out-of-bounds clock.link.bandwidth.mean"),
        ({"gradient_s": Distribution("gamma", -1.0, 0.1)}, "out-of-bounds clock.gradient_s.mean"),
        ({"gradient_s": Distribution("lognormal", 1.0, -0.1)}, "out-of-bounds clock.gradient_s.cv"),
        (
            {"gradient_s": Distribution("gamma", 1.0)},
            "contradiction clock.gradient_s.cv",
        ),
        (
            {"gradient_s": Distribution("uniform", 1.0, 0.6)},
            "out-of-bounds clock.gradient_s.cv",
        ),
        (
            {"gradient_s": Distribution("exponential", 1.0, 2.0)},
            "no-effect clock.gradient_s.cv",
        ),
        (
            {"gradient_s": Distribution("normal", 1.0, 0.1)},  # type: ignore[arg-type]  # as a config may have it
            "unknown-value clock.gradient_s.kind",
        ),
        (
            {"gradient_s": Distribution("gamma", cv=0.1)},
            "missing clock.gradient_s.mean",
        ),
        (
            {"server_s": Distribution("gamma", 1.0, 0.1, run="abc")},
            "no-effect clock.server_s.run",
        ),
        ({"server_s": Distribution("recorded")}, "missing clock.server_s.run"),
        (
            {"gradient_s": Distribution("recorded", run="abc")},
            "contradiction clock.gradient_s.values",
        ),
        (
            {"gradient_s": Distribution("recorded", 2.0, run="abc", values=[1.0, 2.0])},
            "contradiction clock.gradient_s.mean",
        ),
        (
            {"gradient_s": Distribution("recorded", 0.5, run="abc", values=[-1.0, 2.0])},
            "out-of-bounds clock.gradient_s.values",
        ),
        (
            {"link": Link(bandwidth=Distribution("recorded", run="abc"))},
            "contradiction clock.link.bandwidth.kind",
        ),
        ({"server_process": 1}, "wrong-type clock.server_process"),
        ({"group": MachineGroup(0)}, "out-of-bounds clock.group.machines"),
        ({"group": MachineGroup(2.5)}, "wrong-type clock.group.machines"),  # type: ignore[arg-type]
        ({"group": MachineGroup(8, True)}, "wrong-type clock.group.phases"),
        ({"group": MachineGroup(8, 0)}, "out-of-bounds clock.group.phases"),
        ({"group": MachineGroup(8, None)}, "wrong-type clock.group.phases"),  # type: ignore[arg-type]
        ({"group": MachineGroup(8, messages=0)}, "out-of-bounds clock.group.messages"),
        ({"group": MachineGroup(8, bytes=-1.0)}, "out-of-bounds clock.group.bytes"),
        ({"group": MachineGroup(8, bandwidth=0.0)}, "out-of-bounds clock.group.bandwidth"),
        ({"group": MachineGroup(8, latency_s=math.inf)}, "out-of-bounds clock.group.latency_s"),
        (
            {"group": MachineGroup(8, bytes=1e6)},
            "missing clock.group.bandwidth",
        ),
        ({"deaths": [Death(4, 1.0)]}, "out-of-bounds clock.deaths"),
        ({"deaths": [Death(1, -1.0)]}, "out-of-bounds clock.deaths.at_s"),
        (
            {"deaths": [Death(1, 2.0, 1.0)]},
            "contradiction clock.deaths",
        ),
        ({"deaths": [Death(1, 5.0), Death(1, 2.0, 8.0)]}, "contradiction clock.deaths"),
        ({"deaths": [Death(1, 1.0), Death(1, 2.0)]}, "contradiction clock.deaths"),
    ],
)
def test_a_bad_clock_is_refused_by_key_and_remedy(given: dict[str, Any], mistake: str) -> None:
    with refused(mistake):
        ClockSettings(**{"gradient_s": 1.0} | given).check(workers=4)


def test_a_good_one_is_not() -> None:
    ClockSettings(
        Distribution("lognormal", 0.18, 0.3),
        stragglers={3: 2.0},
        server_s=Distribution("exponential", 0.001),
        link=Link(1e-4, 1.25e9),
        links={0: Link(Distribution("gamma", 0.01, 1.0), 1e6)},
        server_link=Link(bandwidth=Distribution("uniform", 1e9, 0.2)),
        deaths=[Death(1, 3.0, 4.0), Death(1, 5.0), Death(0, 0.0, 0.0)],
        group=MachineGroup(81, 4, None, 1e6, 1.25e9, 1e-4),
    ).check(workers=4)
