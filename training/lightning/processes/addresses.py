"""The address at which the nodes of a run meet, as each of them knows it."""

import ipaddress
import socket
from contextlib import closing
from typing import Final

from scalebook.training.base import ConfigError, NodeRank

ADDRESS: Final = "MASTER_ADDR"


def listening_at(place: NodeRank, port: int, own: bool = False) -> socket.socket:
    """A socket that listens at the rendezvous address (which must be this machine's) or, with `own`, at this machine's
    own address in that network; at no other. ConfigError if that is not possible."""
    address = ipaddress.ip_address(_own_address(place)) if own else resolved(place)
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        return socket.create_server((str(address), port), family=family)
    except OSError as error:
        why = f"and MASTER_PORT: this machine cannot listen at {place.address}:{port} ({error.strerror})"
        fix = "Set both to the first node's own address and to a port that is free on this node."
        raise ConfigError(ADDRESS, why, fix) from error


def resolved(place: NodeRank) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The address as this machine resolves it. ConfigError if it is invalid, or means a different address on each
    node."""
    try:
        addresses = socket.getaddrinfo(place.address, place.port, type=socket.SOCK_STREAM)
    except OSError as error:
        why = f"is {place.address!r}, which this machine does not know ({error.strerror})"
        raise ConfigError(ADDRESS, why, "Set it to the first node's own address.") from error
    address = ipaddress.ip_address(str(addresses[0][4][0]).partition("%")[0])
    if place.nodes > 1 and address.is_loopback and not _says_loopback(place.address):
        why = f"is {place.address!r}, which is {address} on this machine, so other nodes cannot reach this machine"
        raise ConfigError(ADDRESS, why, "Set it to the first node's numeric address in the common network.")
    return address


def interface_to(place: NodeRank | None) -> str | None:
    """The network interface through which this machine reaches the other nodes; None if it has no name. `place` is None
    for a process that was started alone."""
    if place is None or place.nodes == 1:
        return "lo" if any(name == "lo" for _, name in socket.if_nameindex()) else None
    own_address = _own_address(place)
    import psutil  # here: a run on one machine needs torch and Lightning alone

    for name, addresses in psutil.net_if_addrs().items():
        if any(entry.address.partition("%")[0] == own_address for entry in addresses):
            return name
    return None


def _own_address(place: NodeRank) -> str:
    """Of this machine, in the network where the others are."""
    address = resolved(place)
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    with closing(socket.socket(family, socket.SOCK_DGRAM)) as asking:  # it sends nothing
        asking.connect((str(address), place.port))
        return str(asking.getsockname()[0])


def _says_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
