"""A parameter server's run that is spread over machines: this machine's part in it, made before the fork."""

import ipaddress
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count

from scalebook.training.errors import ConfigError
from scalebook.training.nodes import Place
from scalebook.training.ps.far import OnePort, Passage, Run, run_name, settings_digest
from scalebook.training.ps.launch import Launch
from scalebook.training.ps.policy.contradictions import ARGUMENTS
from scalebook.training.ps.policy.settings import Settings
from scalebook.training.ps.policy.worker_range import WorkerRange
from scalebook.training.strategies.deaths import Deaths
from scalebook.training.strategies.elastic_side import ElasticSide
from scalebook.training.strategies.far_side import FarSide
from scalebook.training.strategies.key_file import key_file, read_key
from scalebook.training.strategies.machine_deaths import FarDeaths, ServerDeaths
from scalebook.training.strategies.machines import ServerSide, who_comes
from scalebook.training.strategies.meeting import listening_at, resolved

_launches: Iterator[int] = count()  # the same in all processes of a run, which launch the same Trainers in turn


@dataclass(frozen=True)
class MachinePart:
    """`here`: workers of this machine, or of this process where several were started on it. `first`: the first one's
    number. One of `port` (where the shards are) and `way` (elsewhere) is there."""

    here: int
    first: int
    side: ServerSide | FarSide
    deaths: Deaths | FarDeaths
    port: OnePort | None = None
    way: Passage | None = None

    def stands_in(self, worker: int) -> bool:
        """Whether a process of this machine stands in for this worker of another."""
        return self.port is not None and worker >= self.here

    def elsewhere(self, workers: int) -> range:
        """The workers that processes here stand in for."""
        return range(self.here if self.port is not None else workers, workers)


def goes_out(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether what is sent there leaves this machine."""
    return not address.is_loopback


def spread(
    place: Place,
    launch: Launch | None,
    settings: Settings,
    environment: Mapping[str, str],
    *,
    here: int,
    devices: int,
    tls: bool,
    restarts: int,
    deadline_s: float,
    started_with: Mapping[str, str],
    elastic: WorkerRange | None = None,
) -> MachinePart:
    """`launch`: of the machine with the shards, which is the first. `devices`: of each machine, as the config has it.
    `started_with`: digests of the config, by key.

    ConfigError where address, port or key are none; ValueError for settings that do not go between machines.
    """
    address = resolved(place)
    port, first = place.port + place.hosted, place.index * here
    name = run_name(environment, place.where, next(_launches))
    secret = read_key(key_file(environment), makes=place.index == 0)
    encrypted = tls and goes_out(address)
    run = Run(name, secret, encrypted, str(address), port, here * place.count, settings)
    me = who_comes(devices, settings_digest(settings), started_with)
    if launch is None:
        way = Passage(run, place.index, first, here)
        side = FarSide(place, way, me, deadline_s)
        return MachinePart(here, first, side, FarDeaths(side, restarts), way=way)
    with ExitStack() as undo:
        listener = undo.enter_context(listening_at(place, port))
        try:
            one = OnePort(launch, run, listener, here, place.count - 1, elastic is not None)
        except ModuleNotFoundError as error:
            why = f"needs the package {error.name}, which is not installed here"
            remedy = "Install it, or write false where the network is your own."
            raise ConfigError(f"{ARGUMENTS}.tls", why, remedy) from error
        undo.pop_all()
    server = (
        ServerSide(place, one, me, deadline_s, launch)
        if elastic is None
        else ElasticSide(place, one, me, deadline_s, launch, here, elastic)
    )
    return MachinePart(here, first, server, ServerDeaths(launch, restarts, server, here), port=one)
