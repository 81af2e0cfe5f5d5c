"""SGD without a server under Lightning: workers exchange parameters with each other."""

from typing import Annotated, Literal

from scalebook.training.engine.rules import (
    Above,
    ClockSettings,
    Codec,
    CodecName,
    CountOrNone,
    Every,
    ExchangeName,
    Limits,
    NonNegativeInt,
    PeerExchange,
    Peering,
    Settings,
    Topology,
    TopologyName,
    make_codec,
    make_exchange,
    make_topology,
    run_limits,
)
from scalebook.training.lightning.arguments import AsyncArguments, read_clock_settings, read_object
from scalebook.training.lightning.async_ps.engine_strategy import EngineStrategy
from scalebook.training.lightning.buffers import BufferPolicy

PeerHost = Literal["inline", "virtual"]


class Peers(EngineStrategy):
    """Workers have parameters and optimizers of their own, and exchange parameters with each other; there is no server.

    PeerExchange, topology, codec and `clock` may also be mappings, as a config writes them. An update is a round of all
    workers, or under `ad_psgd` and `gossip` one worker's exchange: compare runs by samples and seconds. Learning rate
    schedules count a worker's own steps. Validation and checkpoints use the mean of the living workers' parameters,
    with worker 0's optimizer state; a resumed run starts from them. A worker that joins late takes the others'
    mean.

    Args:
        workers: Worker processes. More workers than devices share them. Null: one per device.
        exchange: What workers exchange. `d_psgd`: in rounds, each averages with its neighbours. `ad_psgd`: one pair
            averages at a time; nobody waits. `sgp`: in rounds, by messages with a weight, to which nobody answers.
            `gossip`: such messages at random times; nobody waits.
        topology: Who is whose neighbour. `ring`, `torus`, `exponential` (1, 2, 4, ... ahead), `one_peer_exponential`
            (one of these a round, in turn), `complete`, `bipartite`, or a class of your own.
        codec: Compression of what workers send, of the difference to what the others know (CHOCO-SGD). In shared memory
            a codec costs time and saves none; it shows what fewer bytes do to training.
        mixing: How far a worker moves towards its neighbours' mean, above 0 and at most 1. Null: 1. To be written with
            `topk`, `randomk` and `powersgd`, which diverge at 1.
        every: Steps of a worker between two exchanges. More: less traffic, and workers drift further apart.
        global_every: Rounds after which all workers average exactly, as if the topology were `complete`. 0: never.
        host: Where workers live. `inline`: in processes that share memory. `virtual`: one process simulates all workers
            in the order that `clock` gives; `seconds` are those of the clock.
        buffers: How workers share buffers that training changes; as for AsyncPS.
        limits: `restarts`: how often a dead worker restarts in one run; after that, its neighbours become each other's.
            Worker 0 never restarts: its death ends the run. `deadline_s`: seconds after which a wait for another
            process fails.
        clock: How long everything takes for virtual workers. Each has a line out and a line in, as fast as its link.
    """

    strategy_name = "peers"

    def __init__(
        self,
        workers: CountOrNone = None,
        exchange: ExchangeName | PeerExchange = "d_psgd",
        topology: TopologyName | Topology = "ring",
        codec: CodecName | Codec = "fp32",
        mixing: Annotated[float, Above(0, "null")] | None = None,
        every: Every = 1,
        global_every: NonNegativeInt = 0,
        host: PeerHost = "inline",
        buffers: BufferPolicy | None = None,
        limits: Limits = run_limits.USUAL,
        clock: ClockSettings | None = None,
    ) -> None:
        super().__init__(
            lambda: AsyncArguments(
                server=Settings(
                    host=host,
                    clock=read_clock_settings(clock),
                    local=Peering(
                        make_exchange(read_object(exchange, ExchangeName | PeerExchange, PeerExchange.ARGUMENT)),
                        make_topology(read_object(topology, TopologyName | Topology, Topology.ARGUMENT)),
                        codec=make_codec(read_object(codec, CodecName | Codec, "codec"), "codec"),
                        mixing=mixing,
                        every=every,
                        global_every=global_every,
                    ),
                ),
                workers=workers,
                buffers=buffers,
                limits=run_limits.read_limits(limits),
                record="nothing",
                tls=True,
            )
        )
