"""Ports for servers of tests: two that begin to look at the same one meet on it."""

import socket

LOOPBACK = "127.0.0.1"


def kernels_choice() -> int:
    """A port that nothing listens on, of those that the kernel gives out in turn."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
    return port
