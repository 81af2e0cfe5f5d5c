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
    """Workers have their own parameters and optimizers, and exchange parameters with each other. There is no server.

    PeerExchange, topology, codec and `clock` may also be mappings, as in a config. An update is a round of all workers,
    or, under `ad_psgd` and `gossip`, one worker's exchange, so compare runs by samples and seconds. Learning rate
    schedules count a worker's own steps. Validation and checkpoints use the mean of the living workers' parameters,
    with worker 0's optimizer state, and a resumed run starts from both. A worker that joins late starts with the mean
    of the others.

    Args:
        workers: Number of worker processes. If there are more workers than devices, workers share devices. Null: one
            per device.
        exchange: What workers exchange. `d_psgd`: in rounds, each worker averages with its neighbours. `ad_psgd`: one
            pair averages at a time; nobody waits. `sgp`: in rounds, by messages with a weight, which nobody answers.
            `gossip`: such messages at random times; nobody waits.
        topology: Which workers are neighbours. `ring`, `torus`, `exponential` (1, 2, 4, ... ahead),
            `one_peer_exponential` (one of these distances per round, in turn), `complete`, `bipartite`, or a custom
            class.
        codec: Compression of what workers send: the difference from the values that the receivers have (CHOCO-SGD). In
            shared memory, a codec costs time and saves none, but shows how training behaves with fewer bytes.
        mixing: How far a worker moves towards the mean of its neighbours, above 0 and at most 1. Null: 1. `topk`,
            `randomk` and `powersgd` diverge at 1, so they need a value.
        every: Number of steps that a worker makes between two exchanges. A larger number means less traffic, but
            workers drift further apart.
        global_every: Number of rounds after which all workers average exactly, as if the topology were `complete`. 0:
            never.
        host: Where workers run. `inline`: in processes that share memory. `virtual`: one process simulates all workers
            in the order that `clock` determines, and `seconds` are those of the clock.
        buffers: How workers share buffers that training changes, as for AsyncPS.
        limits: `restarts`: how often dead workers restart in one run; after that, the neighbours of a worker that dies
            become each other's neighbours. Worker 0 never restarts: its death ends the run. `deadline_s`: seconds after
            which waiting for another process fails.
        clock: How long everything takes for virtual workers. Each worker can send and receive at the same time, each at
            the speed of its link.
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
