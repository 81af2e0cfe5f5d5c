"""Workers that exchange parameters with each other instead of with shards: what, with whom, how often. Pure."""

from collections.abc import Callable

from typing_extensions import override

from scalebook.training.engine.rules.argument_error import ArgumentError
from scalebook.training.engine.rules.codecs import Codec, Fp32
from scalebook.training.engine.rules.exchanges import PeerExchange
from scalebook.training.engine.rules.local_steps import Communication
from scalebook.training.engine.rules.topologies import Topology, graph_of, mixing_weights
from scalebook.training.engine.rules.update_rules import Rule


def one_machine() -> ArgumentError:
    """Why peers cannot train on several machines."""
    why = "are peers, which exchange parameters in the memory of one machine"
    return ArgumentError("contradiction", "workers", why, "Set trainer.num_nodes: 1, or use AsyncPS.")


class Peering(Communication):
    """The arguments of the strategy `Peers`. To the engine a peer is a worker with local steps that keeps its own
    parameters.

    `mixing` None: 1. An update is a round of all, or one peer's exchange where nobody waits.
    """

    ARGUMENT = ""
    name = "peers"
    keeps = True
    peers = True

    def __init__(
        self,
        exchange: PeerExchange,
        topology: Topology,
        codec: Codec | None = None,
        mixing: float | None = None,
        every: int = 1,
        global_every: int = 0,
    ) -> None:
        self.exchange, self.topology, self.codec = exchange, topology, codec or Fp32()
        self.mixing, self.every, self.global_every = mixing, every, global_every

    @property
    def in_rounds(self) -> bool:  # type: ignore[override]
        """Whether each update has a step of each worker."""
        return self.exchange.waits

    @property
    def buffers(self) -> int:  # type: ignore[override]
        """Those of its own, and two mailboxes where messages wait in one."""
        return self.own_buffers + (0 if self.exchange.waits or self.exchange.pairs else 2)

    @property
    def own_buffers(self) -> int:
        """Copies of a peer's own parameters in shared memory: a third where it computes with one of them."""
        return 3 if self.exchange.pairs else 2

    @property
    def effective_mixing(self) -> float:
        """How far a peer moves towards its neighbours' mean."""
        return 1.0 if self.mixing is None else self.mixing

    @override
    def is_due(self, since: int, version: int, moved: Callable[[], float]) -> bool:
        """After `every` steps."""
        return since >= self.every

    @override
    def check(self, rule: Rule, workers: int) -> None:
        """ArgumentError for what would not be computed as written."""
        mixes = self.exchange.waits and not self.exchange.push_sum
        argument = "codec"
        if self.codec.codes and not mixes:
            raise ArgumentError(
                "contradiction",
                argument,
                f"{self.codec.name} sends the difference from the receivers' values, which are known only with d_psgd",
                "Use fp32, or set exchange: d_psgd.",
            )
        if self.codec.codes and self.topology.period(workers) > 1:
            raise ArgumentError(
                "contradiction",
                argument,
                f"{self.codec.name} sends the difference from the receivers' values, but in {self.topology.name} the "
                "receivers change from round to round",
                "Use fp32, or set topology: exponential.",
            )
        if self.codec.codes and self.global_every:
            raise ArgumentError(
                "contradiction",
                argument,
                f"{self.codec.name} sends the difference from the neighbours' values, but with global_every peers that "
                "are not neighbours receive the difference too",
                "Use fp32, or set global_every: 0.",
            )
        argument = "mixing"
        if self.codec.omits and self.mixing is None:
            raise ArgumentError(
                "missing",
                argument,
                f"is missing, but with the default, 1, peers diverge under {self.codec.name}, which omits values",
                "Set how far to move towards the neighbours' mean, such as 0.2, and search for the largest value that "
                "converges.",
            )
        if self.mixing is not None and not mixes:
            raise ArgumentError("no-effect", argument, f"has no effect with exchange {self.exchange.name}", "Use null.")
        if self.mixing is not None and not 0 < self.mixing <= 1:
            raise ArgumentError(
                "out-of-bounds",
                argument,
                f"is {self.mixing}, but must be above 0 and at most 1",
                "Use a number above 0 and at most 1, or null.",
            )
        if self.global_every and not self.exchange.waits:
            raise ArgumentError(
                "contradiction",
                "global_every",
                f"lets all peers average in a round, but {self.exchange.name} has no rounds",
                "Use 0, or set exchange: d_psgd.",
            )
        self._check_graphs(workers)

    def _check_graphs(self, workers: int) -> None:
        members = range(workers)
        for round_ in range(self.topology.period(workers)):
            sends = graph_of(self.topology, round_, members)
            if self.exchange.waits and not self.exchange.push_sum:
                mixing_weights([sends[peer] for peer in members])
