"""What peers refuse, by key and remedy."""

from typing import Any

import pytest

from scalebook.training.engine import Settings
from scalebook.training.engine.rules.clock_settings import ClockSettings, Link
from scalebook.training.engine.rules.codecs import Int8, PowerSgd, RandomK, TopK
from scalebook.training.engine.rules.exchanges import AdPsgd, DPsgd, Gossip, PeerExchange, Sgp, make_exchange
from scalebook.training.engine.rules.peering import Peering
from scalebook.training.engine.rules.topologies import Exponential, OnePeerExponential, Ring, Topology
from tests.training.engine.refusing import refused
from tests.training.engine.rules.test_topologies import Funnel

CODES: Any = {"codec": Int8()}


@pytest.mark.parametrize(
    ("exchange", "topology", "more", "mistake"),
    [
        (Sgp(), Ring(), CODES, "contradiction codec"),
        (AdPsgd(), Ring(), CODES, "contradiction codec"),
        (DPsgd(), OnePeerExponential(), CODES, "contradiction codec"),
        (DPsgd(), Ring(), {**CODES, "global_every": 4}, "contradiction codec"),
        (DPsgd(), Ring(), {"codec": TopK()}, "missing mixing"),
        (DPsgd(), Ring(), {"codec": RandomK()}, "missing mixing"),
        (DPsgd(), Ring(), {"codec": PowerSgd()}, "missing mixing"),
        (DPsgd(), Ring(), {"mixing": 1.5}, "out-of-bounds mixing"),
        (Gossip(), Ring(), {"mixing": 0.5}, "no-effect mixing"),
        (AdPsgd(), Ring(), {"global_every": 3}, "contradiction global_every"),
        (DPsgd(), Funnel(), {}, "contradiction topology"),
    ],
)
def test_what_would_not_be_computed_as_written_is_refused(
    exchange: PeerExchange, topology: Topology, more: dict[str, Any], mistake: str
) -> None:
    with refused(mistake):
        Settings(local=Peering(exchange, topology, **more)).check(8)


def test_what_is_computed_as_written_is_not() -> None:
    for peering in (
        Peering(DPsgd(), Ring(), codec=TopK(), mixing=0.2),
        Peering(DPsgd(), Exponential(), codec=Int8(), every=4),
        Peering(Sgp(), Funnel()),
        Peering(DPsgd("combine_first"), OnePeerExponential(), global_every=8),
        Peering(AdPsgd(), Funnel()),
    ):
        Settings(local=peering).check(8)


def test_peers_have_no_server_whose_time_could_be_declared() -> None:
    for name, value in (("server_s", 0.1), ("server_link", Link(0.1)), ("server_process", True)):
        clock = ClockSettings(gradient_s=1.0, **{name: value})  # type: ignore[arg-type]
        with refused(f"no-effect clock.{name}"):
            Settings(host="virtual", clock=clock, local=Peering(DPsgd(), Ring())).check(8)


def test_exchanges_by_name() -> None:
    assert make_exchange("ad_psgd") == AdPsgd()
    with refused("unknown-value exchange"):
        make_exchange("push")  # type: ignore[arg-type]
    with refused("unknown-value exchange.order"):
        DPsgd("late")  # type: ignore[arg-type]
    with refused("out-of-bounds exchange.probability"):
        Gossip(0)
