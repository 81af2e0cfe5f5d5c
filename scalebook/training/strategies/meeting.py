"""Where the workers of several machines meet: a store of torch's at the address that all were told."""

import ipaddress
import os
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from itertools import count
from typing import Final

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from scalebook.training.errors import ConfigError
from scalebook.training.failures import TimedOut
from scalebook.training.nodes import Place

ADDRESS: Final = "MASTER_ADDR"
ASK_S: Final = 10.0
"""How long an answer of the store may take."""
KNOCK_S: Final = 0.1
_launches: Iterator[int] = count()  # the same in all processes of a run, which launch the same Trainers in turn


class Meeting:
    """One launch's, in the process that was started; made before the fork, so that the port is held.

    Whoever is first listens at the address that was given, and at no other, unless torchrun's agent does.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.prefix = f"scalebook/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{next(_launches)}"
        resolved(place)
        self.hosts = place.index == 0 and not place.hosted
        self.given_up = False
        """By the process that was started: nobody is waited for any more."""
        self._listening: socket.socket | None = None
        if self.hosts:
            self._listening = listening_at(place, place.port)

    def opened(self, until: float) -> Store:
        """The store, for the process that hosts it or any other of those that were started; TimedOut at `until`."""
        if self._listening is not None:
            listening, self._listening = self._listening, None
            port = listening.getsockname()[1]
            return PrefixStore(
                f"{self.prefix}/monitors",
                TCPStore(
                    self.place.address,
                    port,
                    is_master=True,
                    timeout=timedelta(seconds=ASK_S),
                    wait_for_workers=False,
                    master_listen_fd=listening.detach(),
                ),
            )
        return self._reached("monitors", until)

    def of_workers(self, until: float) -> Store:
        """The same store under other keys, in a worker."""
        return self._reached("workers", until)

    def in_worker(self) -> None:
        """After the fork: the port is the monitor's."""
        self.close()
        if (interface := interface_to(self.place)) is not None:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)

    def close(self) -> None:
        """Stop listening where nobody has begun to."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    def _reached(self, keys: str, until: float) -> Store:
        while True:
            try:
                with socket.create_connection((self.place.address, self.place.port), timeout=max(0.1, _left(until))):
                    break
            except OSError as error:
                if _left(until) <= 0 or self.given_up:
                    raise TimedOut(f"nothing listens at {self.place.where} ({error})") from error
                time.sleep(KNOCK_S)
        store = TCPStore(
            self.place.address,
            self.place.port,
            is_master=False,
            timeout=timedelta(seconds=max(ASK_S, _left(until))),
            wait_for_workers=False,
        )
        store.set_timeout(timedelta(seconds=ASK_S))
        return PrefixStore(f"{self.prefix}/{keys}", store)


def listening_at(place: Place, port: int) -> socket.socket:
    """At the address that was given, and at no other. ConfigError where that cannot be."""
    own = resolved(place)
    try:
        return socket.create_server((str(own), port), family=socket.AF_INET6 if own.version == 6 else socket.AF_INET)
    except OSError as error:
        why = f"and MASTER_PORT: nobody can listen at {place.address}:{port} here ({error.strerror})"
        remedy = "Give the first machine's own address, and a port that is free there."
        raise ConfigError(ADDRESS, why, remedy) from error


def resolved(place: Place) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The address as this machine knows it. ConfigError where it is none, or one that means another on each machine."""
    try:
        found = socket.getaddrinfo(place.address, place.port, type=socket.SOCK_STREAM)
    except OSError as error:
        why = f"is {place.address!r}, which this machine does not know ({error.strerror})"
        raise ConfigError(ADDRESS, why, "Give the first machine's own address.") from error
    address = ipaddress.ip_address(str(found[0][4][0]).partition("%")[0])
    if place.nodes > 1 and address.is_loopback and not _says_loopback(place.address):
        why = f"is {place.address!r}, which is {address} on this machine: others would not find it there"
        raise ConfigError(ADDRESS, why, "Give the address of the first machine's network, in numbers.")
    return address


def interface_to(place: Place) -> str | None:
    """The network interface by which this machine reaches the others; None where it has no name."""
    if place.nodes == 1:
        return "lo" if any(name == "lo" for _, name in socket.if_nameindex()) else None
    address = resolved(place)
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    with closing(socket.socket(family, socket.SOCK_DGRAM)) as asking:  # it sends nothing
        asking.connect((str(address), place.port))
        own = asking.getsockname()[0]
    import psutil  # here: a run on one machine needs torch and Lightning alone

    for name, addresses in psutil.net_if_addrs().items():
        if any(found.address.partition("%")[0] == own for found in addresses):
            return name
    return None


def _says_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _left(until: float) -> float:
    return until - time.monotonic()
