"""Networks by name, and links as a person writes them."""

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.engine.rules.clock_settings import Link
from scalebook.training.pricing.links import FASTER, NETWORKS, WORDS, network, read_link


def test_ethernet_carries_its_payload_and_servers_share_one_link() -> None:
    """10 Gbit/s are 1.25 GB/s, of which TCP leaves 94 %; a message waits for the network once."""
    found = network("10gbe", "--network")
    assert found.link.bandwidth == pytest.approx(0.94 * 1.25e9)
    assert (found.link.latency_s, found.server_link) == (20e-6, Link(0.0, found.link.bandwidth))
    assert network("100gbe", "--network").link.bandwidth == pytest.approx(10 * 0.94 * 1.25e9)
    assert set(FASTER) | set(FASTER.values()) == set(NETWORKS) < set(WORDS)


def test_one_s_own_link_is_that_of_workers_and_of_servers() -> None:
    found = network({"bandwidth": "25 Gbit/s", "latency": "10 us"}, "--network")
    assert (found.link.bandwidth, found.server_link) == (3.125e9, Link(0.0, 3.125e9))
    assert found.link.latency_s == pytest.approx(1e-5)
    assert read_link({}, "link") == Link(0.0, None)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("10gb", r"net: there is no network '10gb'. Did you mean `10gbe`\?"),
        (7, r"net: is 7\. Set it to {bandwidth: 10 Gbit/s, latency: 20 us}"),
        ({"speed": 1}, "net.speed: unknown key"),
        ({"bandwidth": 0}, "net.bandwidth: is 0, so nothing would arrive"),
        ({"latency": "-1 ms"}, "net.latency: is '-1 ms'"),
    ],
)
def test_what_is_no_link_is_refused_by_its_key(written: object, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        network(written, "net")
