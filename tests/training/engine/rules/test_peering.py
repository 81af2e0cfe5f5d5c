"""What peers refuse, by key and remedy."""

from typing import Any

import pytest

from scalebook.training.engine import Settings
from scalebook.training.engine.rules.clock_settings import ClockSettings, Link
from scalebook.training.engine.rules.codecs import Int8, PowerSgd, RandomK, TopK
from scalebook.training.engine.rules.exchanges import AdPsgd, DPsgd, Gossip, PeerExchange, Sgp, make_exchange
from scalebook.training.engine.rules.peering import Peering
from scalebook.training.engine.rules.topologies import Exponential, OnePeerExponential, Ring, Topology
from tests.training.engine.rules.test_topologies import Funnel

CODES: Any = {"codec": Int8()}


@pytest.mark.parametrize(
    ("exchange", "topology", "more", "message"),
    [
        (Sgp(), Ring(), CODES, r"codec: int8 carries the difference .* Write fp32, or exchange: d_psgd"),
        (AdPsgd(), Ring(), CODES, r"codec: int8 carries the difference"),
        (DPsgd(), OnePeerExponential(), CODES, r"codec: .* change from round to round\. Write fp32, or topology"),
        (DPsgd(), Ring(), {**CODES, "global_every": 4}, r"codec: .* Write fp32, or global_every: 0"),
        (DPsgd(), Ring(), {"codec": TopK()}, r"mixing: is missing, .* topk, .* such as 0\.2"),
        (DPsgd(), Ring(), {"codec": RandomK()}, r"mixing: is missing"),
        (DPsgd(), Ring(), {"codec": PowerSgd()}, r"mixing: is missing"),
        (DPsgd(), Ring(), {"mixing": 1.5}, r"mixing: 1\.5 is not above 0 and at most 1"),
        (Gossip(), Ring(), {"mixing": 0.5}, r"mixing: has no effect with exchange gossip\. Write null"),
        (AdPsgd(), Ring(), {"global_every": 3}, r"global_every: .* Write 0, or exchange: d_psgd"),
        (DPsgd(), Funnel(), {}, r"topology: its peers do not send as often as they receive"),
    ],
)
def test_what_would_not_be_computed_as_written_is_refused(
    exchange: PeerExchange, topology: Topology, more: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=rf"^trainer\.strategy\.init_args\.{message}"):
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
        with pytest.raises(ValueError, match=rf"clock\.{name}: has no effect, since peers have no server"):
            Settings(host="virtual", clock=clock, local=Peering(DPsgd(), Ring())).check(8)


def test_exchanges_by_name() -> None:
    assert make_exchange("ad_psgd") == AdPsgd()
    with pytest.raises(ValueError, match=r"init_args\.exchange: 'push' is unknown\. Use one of d_psgd, ad_psgd"):
        make_exchange("push")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"order: 'late' is unknown\. Use one of adapt_first, combine_first"):
        DPsgd("late")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"init_args\.probability: 0 is not above 0"):
        Gossip(0)
