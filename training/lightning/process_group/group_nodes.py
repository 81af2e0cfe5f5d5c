"""The nodes of a process group: where the first node's monitor listens, and how the others find it."""

import json
import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore
from typing_extensions import override

from scalebook.training.base import NodeRank
from scalebook.training.engine import served_run
from scalebook.training.lightning.processes.addresses import listening_at, resolved
from scalebook.training.lightning.processes.key_file import key_of_run
from scalebook.training.lightning.processes.node_monitors import FirstMonitor, OtherMonitor
from scalebook.training.lightning.processes.peer_monitor import hello

ASK: Final = timedelta(seconds=10)
"""How long an answer of torchrun's store may take in a monitor, s."""


def node_monitor(
    place: NodeRank, name: str, devices: int, deadline_s: float, started_with: Mapping[str, str], meets_at: int
) -> FirstMonitor | OtherMonitor:
    """This node's monitor, created before the fork. `name`: the run's name; `devices`: workers on one node; `meets_at`:
    the port on the first node at which the workers meet. ConfigError for an invalid address, port or key."""
    address, is_first = str(resolved(place)), place.index == 0
    secret = key_of_run(os.environ, name, makes=is_first)
    me = hello(devices, started_with)
    if is_first:
        listener = listening_at(place, 0, own=True) if place.hosted else listening_at(place, place.port)
        if place.hosted:
            agents_store(place).set(_key(name), json.dumps(listener.getsockname()[:2]))
        return FirstMonitor(
            place,
            served_run.MonitorMailbox(name, secret, None, listener, place.count - 1),
            me,
            deadline_s,
            meets_at=meets_at,
        )
    reach = served_run.ProxyAddress(address, 0 if place.hosted else place.port, secret, False, place.index - 1)
    mailbox = HostedMailbox(name, reach, place) if place.hosted else served_run.RemoteMailbox(name, reach)
    return OtherMonitor(place, mailbox, me, deadline_s)


class HostedMailbox(served_run.RemoteMailbox):
    """Finds the first monitor through torchrun's store, if torchrun's agent listens at MASTER_PORT: a fixed port beside
    it may belong to another job, and the agent may be on another node."""

    def __init__(self, name: str, reach: served_run.ProxyAddress, place: NodeRank) -> None:
        super().__init__(name, reach)
        self._place = place
        self._store: TCPStore | None = None

    @override
    def find(self, within_s: float) -> bool:
        if not self._reach.port:
            try:
                self._store = self._store or agents_store(self._place)
                if not self._store.check([_key(self._name)]):
                    self.unfound = f"torchrun's store at {self._place.where} does not know where node 0 listens"
                    return False
                host, port = json.loads(self._store.get(_key(self._name)))
                self._reach = self._reach._replace(host=str(host), port=int(port))
            except dist.DistError as error:
                self.unfound, self._store = f"torchrun's store at {self._place.where}: {error}", None
                return False
            self._store = None
        return super().find(within_s)


def agents_store(place: NodeRank, timeout: timedelta = ASK) -> TCPStore:
    """The store of torchrun's agent, at MASTER_ADDR and MASTER_PORT. `timeout`: for each answer."""
    return TCPStore(place.address, place.port, is_master=False, timeout=timeout, wait_for_workers=False)


def _key(name: str) -> str:
    return f"scalebook {name} monitor"
