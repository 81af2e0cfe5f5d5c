"""What peers send each other, and for what they wait. Pure."""

from abc import ABC
from typing import Annotated, ClassVar, Final, Literal

from scalebook.training.engine.rules.argument_error import ArgumentError
from scalebook.training.engine.rules.argument_limits import Above, AtMost, BySettings

ExchangeName = Literal["d_psgd", "ad_psgd", "sgp", "gossip"]
Order = Literal["adapt_first", "combine_first"]


class PeerExchange(BySettings, ABC):
    """How peers bring their parameters together."""

    ARGUMENT = "exchange"
    name: ClassVar[str]
    """Its name in a config and in messages."""
    words: ClassVar[str]
    """The label that tells runs apart."""
    waits: ClassVar[bool] = False
    """Whether peers go in rounds, and wait for what their neighbours send."""
    pairs: ClassVar[bool] = False
    """Whether two peers average at once, whenever one of them has made a step."""
    push_sum: ClassVar[bool] = False
    """Whether a weight travels with the parameters, so that nobody needs to answer."""
    order: Order = "adapt_first"
    probability: float = 1.0
    """That a step is followed by an exchange."""

    @property
    def combines_first(self) -> bool:
        """Whether parameters are published before the gradient is computed, and the exchange takes place meanwhile."""
        return self.order == "combine_first"


class _Rounds(PeerExchange):
    waits = True

    def __init__(self, order: Order = "adapt_first") -> None:
        if order not in ("adapt_first", "combine_first"):
            raise ArgumentError(
                "unknown-value",
                f"{self.ARGUMENT}.order",
                f"{order!r} is unknown",
                "Use one of adapt_first, combine_first.",
            )
        self.order = order


class DPsgd(_Rounds):
    """In each round, a peer averages its parameters with those of its neighbours (D-PSGD: Lian et al. 2017).

    Args:
        order: `adapt_first` takes the optimizer step first and then averages. On the complete graph, this is
            synchronous SGD. `combine_first` exchanges the current parameters while the gradient is computed, which
            hides the exchange, and then adds the step to the average.
    """

    name = "d_psgd"
    words = "D-PSGD"


class AdPsgd(PeerExchange):
    """After each gradient, a peer and one of its neighbours both take the mean of their parameters, and then the peer
    makes its step. Nobody waits (AD-PSGD: Lian et al. 2018).

    While a gradient is computed, other peers may change the parameters, so the gradient can be stale.
    """

    name = "ad_psgd"
    words = "AD-PSGD"
    pairs = True


class Sgp(_Rounds):
    """In each round, a peer sends shares of its parameters and of a weight to its neighbours, which do not answer
    (stochastic gradient push: Assran et al. 2019).

    Args:
        order: `adapt_first` takes the optimizer step first and then sends. `combine_first` sends while the gradient is
            computed.
    """

    name = "sgp"
    words = "SGP"
    push_sum = True


class Gossip(PeerExchange):
    """After a step, a peer may send its parameters and half of its weight to one neighbour. Nobody waits or answers
    (GoSGD: Blot et al. 2016).

    Args:
        probability: Probability that a peer sends a message after a step, above 0 and at most 1. A smaller probability
            means less traffic, but peers drift further apart.
    """

    name = "gossip"
    words = "gossip"

    def __init__(self, probability: Annotated[float, Above(0, "0.5"), AtMost(1, "0.5")] = 0.5) -> None:
        self.probability = probability


EXCHANGES: Final[dict[str, type[PeerExchange]]] = {exchange.name: exchange for exchange in (DPsgd, AdPsgd, Sgp, Gossip)}


def make_exchange(exchange: ExchangeName | PeerExchange) -> PeerExchange:
    """The exchange itself, or the one of this name with its defaults."""
    if isinstance(exchange, PeerExchange):
        return exchange
    if exchange not in EXCHANGES:
        raise ArgumentError(
            "unknown-value", PeerExchange.ARGUMENT, f"{exchange!r} is unknown", f"Use one of {', '.join(EXCHANGES)}."
        )
    return EXCHANGES[exchange]()
