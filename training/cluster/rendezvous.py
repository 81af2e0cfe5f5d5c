"""Where the nodes of one run meet. The first node's agent reserves port and key for as long as it knows the job. The
cluster daemon permits the first node to begin when all others have asked, and these when the first has begun."""

import secrets
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from scalebook.training.base import node_rank
from scalebook.training.base.files import put_secret

KEY_BYTES: Final = 32


@dataclass(frozen=True)
class Rendezvous:
    """Where the nodes of one run meet, and the key by which they recognise each other."""

    address: str
    port: int
    key: str = field(repr=False)

    def environment(self, node: int, key_file: Path) -> dict[str, str]:
        """Environment variables for the process of node `node`; writes the key file, which only its owner can read."""
        put_secret(key_file, self.key.encode())
        return {
            "NODE_RANK": str(node), "MASTER_ADDR": self.address, "MASTER_PORT": str(self.port),
            node_rank.KEY_FILE: str(key_file)
        }  # fmt: skip


class Rendezvouses:
    """On the first node of runs: their ports, which are kept reserved, and their keys."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Rendezvous, socket.socket]] = {}
        self._lock = threading.Lock()

    def of(self, run: str, address: str) -> Rendezvous:
        """The run's rendezvous, the same for every call. `address`: this node's, for the others."""
        with self._lock:
            if run not in self._kept:
                bound = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # this one never listens: the run does
                bound.bind((address, 0))
                rendezvous = Rendezvous(address, bound.getsockname()[1], secrets.token_hex(KEY_BYTES))
                self._kept[run] = rendezvous, bound
            return self._kept[run][0]

    def release(self, run: str) -> None:
        with self._lock:
            _, bound = self._kept.pop(run, (None, None))
        if bound is not None:
            bound.close()


class Gathering:
    """In the cluster daemon: which parts have asked to begin. `meet` returns where the nodes of a run meet, by the run
    and its first node; None while that does not answer."""

    def __init__(self, meet: Callable[[str, str], Rendezvous | None]) -> None:
        self.meet, self.asked = meet, set[str]()
