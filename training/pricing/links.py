"""Networks by name: what joins workers and servers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from scalebook.training.base import ConfigError
from scalebook.training.engine.rules import Link
from scalebook.training.experiments import classes
from scalebook.training.pricing.quantities import quantity

OWN: Final = "own"
"""The network that a profile itself has."""
PAYLOAD: Final = 0.94
"""The share of an Ethernet's bytes that is payload: 1448 bytes of a frame of 1538 with TCP/IPv4 and timestamps."""


@dataclass(frozen=True)
class Network:
    """The link of each worker, and the common link of all servers; full duplex."""

    link: Link = field(default_factory=Link)
    server_link: Link = field(default_factory=Link)


def _ethernet(gigabits: float, latency_s: float) -> Network:
    bandwidth = PAYLOAD * gigabits * 1e9 / 8
    return Network(Link(latency_s, bandwidth), Link(0.0, bandwidth))


NETWORKS: Final[Mapping[str, Network]] = {
    "1gbe": _ethernet(1, 50e-6),
    "10gbe": _ethernet(10, 20e-6),
    "100gbe": _ethernet(100, 5e-6),
    "nvlink": Network(Link(2e-6, 3e11), Link(0.0, 3e11)),
}
"""Ethernet: what a switch and a kernel's TCP take one way, and the payload. NVLink: third generation, 12 links of
25 GB/s in each direction (A100)."""
WORDS: Final[Mapping[str, str]] = {
    OWN: "the links of the profile", "1gbe": "1 Gbit/s Ethernet", "10gbe": "10 Gbit/s Ethernet",
    "100gbe": "100 Gbit/s Ethernet", "nvlink": "NVLink, 300 GB/s each way",
}  # fmt: skip
FASTER: Final[Mapping[str, str]] = {"1gbe": "10gbe", "10gbe": "100gbe", "100gbe": "nvlink"}
"""The next faster network."""


def network(written: object, key: str) -> Network:
    """A network by name, or by values: `{bandwidth: 25 Gbit/s, latency: 10 us}`. ConfigError by key and remedy."""
    if isinstance(written, str):
        if written not in NETWORKS:
            raise ConfigError(key, f"there is no network {written!r}", classes.suggestion(written, [OWN, *NETWORKS]))
        return NETWORKS[written]
    link = read_link(written, key)
    return Network(link, Link(0.0, link.bandwidth))


def read_link(written: object, key: str, waits: str = "latency") -> Link:
    """`{bandwidth: 25 Gbit/s, latency: 10 us}`, either may be missing; ConfigError by key and remedy. `waits`: what the
    seconds of a message are called."""
    if not isinstance(written, Mapping):
        raise ConfigError(key, f"is {written!r}", f"Set it to {{bandwidth: 10 Gbit/s, {waits}: 20 us}}.")
    for name in written:
        if name not in ("bandwidth", waits):
            raise ConfigError(f"{key}.{name}", "unknown key", f"Known: bandwidth, {waits}.")
    given = written.get("bandwidth")
    bandwidth = None if given is None else quantity(given, "B/s", f"{key}.bandwidth")
    if bandwidth == 0:
        raise ConfigError(
            f"{key}.bandwidth", "is 0, so nothing would arrive", "Use a larger number, or null for no limit."
        )
    return Link(quantity(written.get(waits, 0.0), "s", f"{key}.{waits}"), bandwidth)
