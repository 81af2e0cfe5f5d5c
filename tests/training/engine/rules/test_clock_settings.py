"""The declared clock refuses what no run can have, by key and remedy."""

import math
from typing import Any

import pytest

from scalebook.training.engine.rules.clock_settings import ClockSettings, Death, Distribution, Link, MachineGroup

KEY = r"^trainer\.strategy\.init_args\.clock\."


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"gradient_s": -1.0}, r"gradient_s: -1.0 is less than 0\. Use 0 or more\."),
        ({"gradient_s": math.nan}, r"gradient_s: nan is less than 0\."),
        ({"gradient_s": math.inf}, r"gradient_s: inf is not below inf\. Use a finite number\."),
        ({"server_s": -0.1}, r"server_s: -0.1 is less than 0\."),
        ({"stragglers": {4: 2.0}}, r"stragglers: worker 4 does not exist\. Use numbers from 0 to 3\."),
        ({"stragglers": {3: 0.0}}, r"stragglers\.3: 0.0 is not above 0\. Use more than 0\."),
        ({"link": Link(bandwidth=0.0)}, r"link\.bandwidth: 0.0 is not above 0\."),
        ({"link": Link(latency_s=-1e-3)}, r"link\.latency_s: -0.001 is less than 0\."),
        ({"server_link": Link(bandwidth=-1.0)}, r"server_link\.bandwidth: -1.0 is not above 0\."),
        ({"links": {-1: Link()}}, r"links: worker -1 does not exist\."),
        ({"links": {2: Link(bandwidth=0.0)}}, r"links\.2\.bandwidth: 0.0 is not above 0\."),
        ({"link": Link(bandwidth=Distribution("gamma", 0.0, 0.1))}, r"link\.bandwidth\.mean: 0.0 is not above 0\."),
        ({"gradient_s": Distribution("gamma", -1.0, 0.1)}, r"gradient_s\.mean: -1.0 is less than 0\."),
        ({"gradient_s": Distribution("lognormal", 1.0, -0.1)}, r"gradient_s\.cv: -0.1 is less than 0\."),
        (
            {"gradient_s": Distribution("gamma", 1.0)},
            r"gradient_s\.cv: gamma needs a coefficient .*Write one, such as 0\.2\.",
        ),
        (
            {"gradient_s": Distribution("uniform", 1.0, 0.6)},
            r"gradient_s\.cv: 0.6 would .*Use 0.577 or less, or kind: gamma\.",
        ),
        (
            {"gradient_s": Distribution("exponential", 1.0, 2.0)},
            r"gradient_s\.cv: is .*Remove it, or write kind: gamma\.",
        ),
        (
            {"gradient_s": Distribution("normal", 1.0, 0.1)},  # type: ignore[arg-type]  # as a config may have it
            r"gradient_s\.kind: 'normal' is unknown\. Use one of uniform, exponential, lognormal, gamma, recorded\.",
        ),
        (
            {"gradient_s": Distribution("gamma", cv=0.1)},
            r"gradient_s\.mean: is missing\. Write a number such as 0\.05\.",
        ),
        (
            {"server_s": Distribution("gamma", 1.0, 0.1, run="abc")},
            r"server_s\.run: has no effect on gamma\. Remove it, or write kind: recorded\.",
        ),
        ({"server_s": Distribution("recorded")}, r"server_s\.run: is missing\. Write the id of the run that"),
        (
            {"gradient_s": Distribution("recorded", run="abc")},
            r"gradient_s\.values: the measurements of run abc have not been read\. Submit the config to Scalebook",
        ),
        (
            {"gradient_s": Distribution("recorded", 2.0, run="abc", values=[1.0, 2.0])},
            r"gradient_s\.mean: is not the mean of the values\. Remove mean, cv and values",
        ),
        (
            {"gradient_s": Distribution("recorded", 0.5, run="abc", values=[-1.0, 2.0])},
            r"gradient_s\.values: -1.0 is less than 0\. Use 0 or more\.",
        ),
        (
            {"link": Link(bandwidth=Distribution("recorded", run="abc"))},
            r"link\.bandwidth\.kind: runs do not record links.* or record gradient_s and server_s\.",
        ),
        ({"server_process": 1}, r"server_process: is 1\. Write true or false\."),
        ({"group": MachineGroup(0)}, r"group\.machines: 0 is less than 1\. Use 1 or more\."),
        ({"group": MachineGroup(2.5)}, r"group\.machines: is 2\.5, not a whole number\. Write one, as 8\."),  # type: ignore[arg-type]
        ({"group": MachineGroup(8, True)}, r"group\.phases: is True, not a whole number\."),
        ({"group": MachineGroup(8, 0)}, r"group\.phases: 0 is less than 1\."),
        ({"group": MachineGroup(8, None)}, r"group\.phases: is null\. Write a number, or remove it\."),  # type: ignore[arg-type]
        ({"group": MachineGroup(8, messages=0)}, r"group\.messages: 0 is less than 1\. Use 1 or more, or null\."),
        ({"group": MachineGroup(8, bytes=-1.0)}, r"group\.bytes: -1\.0 is less than 0\."),
        ({"group": MachineGroup(8, bandwidth=0.0)}, r"group\.bandwidth: 0\.0 is not above 0\."),
        ({"group": MachineGroup(8, latency_s=math.inf)}, r"group\.latency_s: inf is not below inf\."),
        (
            {"group": MachineGroup(8, bytes=1e6)},
            r"group\.bandwidth: is missing, so that the 1e\+06 bytes .*Write bytes per second, as 1\.25e\+9, or remove",
        ),
        ({"deaths": [Death(4, 1.0)]}, r"deaths: worker 4 does not exist\."),
        ({"deaths": [Death(1, -1.0)]}, r"deaths\.at_s: -1.0 is less than 0\."),
        (
            {"deaths": [Death(1, 2.0, 1.0)]},
            r"deaths: worker 1 comes back at 1 s, before it dies at 2 s\. Write a later",
        ),
        ({"deaths": [Death(1, 5.0), Death(1, 2.0, 8.0)]}, r"deaths: worker 1 dies at 5 s, but is dead by then\."),
        ({"deaths": [Death(1, 1.0), Death(1, 2.0)]}, r"deaths: worker 1 dies at 2 s, but is dead by then\."),
    ],
)
def test_a_bad_clock_is_refused_by_key_and_remedy(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=KEY + message):
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
