"""What the monitors of one run tell each other: who has come, who is there, who wants to stop, how it ended.

They write into the store where the workers meet. Whoever is first looks after all others, who look after it alone.
"""

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Mapping
from importlib.metadata import version
from typing import Final

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store
from typing_extensions import override

from scalebook.training.errors import ConfigError, one_line
from scalebook.training.failures import NodeLost, TimedOut, WorkerLost
from scalebook.training.nodes import NODES
from scalebook.training.strategies.meeting import Meeting
from scalebook.training.strategies.news import Came, How, NodeEnd, end_of, refuse_unlike
from scalebook.training.strategies.others import Others

BEAT_S: Final = 0.5
SILENT_S: Final = 10.0
"""So long without a sign of life of a monitor ends the run."""
FAREWELL_S: Final = 10.0
"""How long whoever hosts the store stays for the others."""
BEGUN: Final = 1 << 30
"""Meetings before training, of a worker that trains."""
DEADLINE_KEY: Final = "trainer.strategy.init_args.deadline_s"


class NodeLink(Others):
    """The other machines, for one monitor and one launch. What it does with the store is done by a thread.

    `begin` it after the fork, ask `check` about once a second, and `end` it however the run has ended.
    """

    def __init__(self, meeting: Meeting, devices: int, deadline_s: float, config: Mapping[str, str]) -> None:
        """`config`: what must be the same everywhere, as digests by key."""
        self._meeting, self._place, self._deadline_s = meeting, meeting.place, deadline_s
        versions = f"Scalebook {version('scalebook')}, torch {torch.__version__}"
        seed = os.environ.get("PL_GLOBAL_SEED", "none")
        self._me = Came(socket.gethostname(), os.getpid(), devices, seed, versions, dict(config))
        self._came: list[Came] = []
        self._begun = self._over = False
        self._is_cut_off = False  # where the thread may stand in a call of the store's as long as TCP hopes
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._live, name="scalebook-link", daemon=True)
        self._heard = 0.0  # of the store
        self._signs: dict[int, tuple[bytes, float]] = {}  # last sign of life, and when it was new
        self._beats = self._arrived = self._least = 0
        self._stop, self._stops = False, False
        self._told: NodeEnd | None = None  # of this one
        self._posted = False
        self._ends: dict[int, NodeEnd] = {}
        self._raised: BaseException | None = None  # by the thread, or by `check`

    # --- in the monitor's own thread ---------------------------------------------------------------------------------

    @override
    def begin(self) -> None:
        """Look for the others."""
        self._thread.start()

    @override
    def check(self, stopping: bool) -> None:
        """Raise what ends the run here because of the others. `stopping`: a SIGTERM has come to this monitor."""
        self._stop |= stopping
        error = self._of_others() or self._raised
        if error is None and self._begun and time.monotonic() - self._heard > SILENT_S:
            error = NodeLost(f"{self._name(0)} does not answer at {self._place.where}, for {SILENT_S:g} s")
            self._is_cut_off = True
        if error is not None:
            self._raised = error
            raise error

    def arrived(self, meetings: int) -> bool:
        """Say to how many meetings before training all workers here have come.

        Whether none elsewhere has come to fewer, so that nobody waits for another machine.
        """
        self._arrived = meetings
        return self._begun and meetings <= self._least

    @override
    def explained(self, error: BaseException) -> BaseException:
        """Tell the others how the run ends here. The error to end with: another machine's, where that is the cause."""
        told = end_of(error)
        if error is not self._raised or self._of_others() is None:
            self._tell(told)
        until = time.monotonic() + SILENT_S + 4 * BEAT_S
        while told.how is How.ECHO:
            all_told = len(self._ends) == self._place.count - 1
            try:
                self.check(stopping=False)
            except BaseException as cause:  # noqa: BLE001  # whatever it is, it is returned
                return cause
            if all_told or time.monotonic() > until:
                break
            time.sleep(BEAT_S / 5)
        return error

    @override
    def end(self) -> None:
        """Leave, when the workers here have ended."""
        done = self._raised is None and self._told is None
        self._tell(NodeEnd(How.DONE if done else How.LEFT))
        self._over = self._meeting.given_up = True
        if self._thread.ident is not None:
            self._thread.join(BEAT_S if self._is_cut_off else 2 * FAREWELL_S)
        self._meeting.close()

    def _tell(self, ended: NodeEnd) -> None:
        if self._told is None:
            self._told = ended
            self._wake.set()

    def _of_others(self) -> BaseException | None:
        """What has ended the run elsewhere."""
        ends = [(list(How).index(end.how), index, end) for index, end in sorted(self._ends.items())]
        ends = [one for one in ends if one[2].how not in (How.ECHO, How.LEFT, How.DONE)]
        if not ends:
            return None
        _, index, end = min(ends, key=lambda one: one[:2])
        if end.how is How.STOPPED:
            return SystemExit(128 + signal.SIGTERM)
        if end.how is How.DIED:
            return WorkerLost(end.worker, f"on {self._name(index)}, {end.cause}")
        if end.how is How.SILENT:
            return NodeLost(f"{self._name(index)} {end.cause}")
        return NodeLost(f"{self._name(index)} has ended with {end.cause}")

    # --- in the thread -----------------------------------------------------------------------------------------------

    def _live(self) -> None:
        try:
            until = time.monotonic() + self._deadline_s
            store = self._reach(until)
            while not (self._over and self._posted):
                self._beat(store)
                self._wake.wait(BEAT_S)
                self._wake.clear()
            self._leave(store)
        except BaseException as error:  # noqa: BLE001  # the monitor raises it
            self._raised = self._raised or self._lost(error)

    def _lost(self, error: BaseException) -> BaseException | None:
        """What it means that the store failed."""
        if isinstance(error, TimedOut | ConfigError):
            return error
        if self._over or self._ends.get(0, NodeEnd(How.LEFT)).how is How.DONE:
            return None
        return NodeLost(f"{self._name(0)} has left {self._place.where}: {one_line(str(error), 200)}")

    def _reach(self, until: float) -> Store:
        """Begin with all others. What is found at first may be the store of the launch before, about to close."""
        while True:
            try:
                store = self._meeting.opened(until)
                self._come(store, until)
            except TimedOut as error:
                if not str(error).startswith(NODES):
                    raise TimedOut(self._missing("node 0 has not come", str(error))) from error
                raise
            except dist.DistNetworkError:
                if self._meeting.hosts or self._ends or time.monotonic() > until:
                    raise
                time.sleep(BEAT_S)
            else:
                return store

    def _come(self, store: Store, until: float) -> None:
        """Until all have. Whoever is first says when."""
        mine, place = self._place.index, self._place
        store.set(f"sign/{mine}", "0")
        store.set(f"came/{mine}", json.dumps(self._me))
        keys = [f"came/{index}" for index in range(place.count)]
        if mine == 0:
            store.set("least", "0")
        while not store.check(["all"]):
            self._look_at_ends(store)
            if self._over or self._ends:
                return
            if mine == 0 and store.check(keys):
                store.set("all", "1")
            elif time.monotonic() > until:
                tasks = [index for index in range(place.count) if not store.check([keys[index]])]
                nodes = " and ".join(map(str, sorted({index // place.tasks for index in tasks})))
                raise TimedOut(self._missing(f"node {nodes} has not come", f"to {place.where}"))
            else:
                time.sleep(0.1)
        self._came = [Came(*json.loads(value)) for value in store.multi_get(keys)]
        for index in range(place.count):
            refuse_unlike(self._came[0], self._came[index], self._name(0), self._name(index))
        self._heard = time.monotonic()
        self._begun = True

    def _missing(self, who: str, where: str) -> str:
        return (
            f"{NODES}: is {self._place.nodes}, and {who}, for {self._deadline_s:g} s: {where}. Start it there as here, "
            f"with its own NODE_RANK, or raise {DEADLINE_KEY}."
        )

    def _beat(self, store: Store) -> None:
        self._look_at_ends(store)
        if not self._begun:
            return
        mine = self._place.index
        self._beats += 1
        store.set(f"sign/{mine}", f"{self._beats} {self._arrived}")
        if self._stop and not self._stops:
            self._stops = True
            store.add("stop", 1)
        if mine == 0:
            self._look_after_all(store)
            if store.add("stop", 0) and not self._stops and not self._over:
                self._stops = True
                os.kill(os.getpid(), signal.SIGTERM)
        else:
            self._note(0, store.get("sign/0"))
        self._least = int(store.get("least"))
        self._heard = time.monotonic()

    def _look_after_all(self, store: Store) -> None:
        keys = [f"sign/{index}" for index in range(self._place.count)]
        signs = store.multi_get(keys)
        arrived = []
        for index, sign in enumerate(signs):
            self._note(index, sign)
            if index not in self._ends:
                arrived.append(int(bytes(sign).split()[-1]))
        store.set("least", str(min(arrived, default=BEGUN)))

    def _note(self, index: int, sign: bytes) -> None:
        now = time.monotonic()
        before, since = self._signs.get(index, (b"", now))
        if before != sign:
            self._signs[index] = sign, now
        elif now - since > SILENT_S and index not in self._ends:
            self._ends[index] = NodeEnd(How.SILENT, f"has not been heard of for {SILENT_S:g} s")

    def _look_at_ends(self, store: Store) -> None:
        """Tell how this one ended; read how others did."""
        mine = self._place.index
        if self._told is not None and not self._posted:
            store.set(f"end/{mine}", json.dumps(self._told))
            store.add("ends", 1)
            self._posted = True
        known = sum(end.how is not How.SILENT for end in self._ends.values()) + self._posted
        if store.add("ends", 0) > known:
            for index in range(self._place.count):
                if index != mine and index not in self._ends and store.check([f"end/{index}"]):
                    how, cause, worker = json.loads(store.get(f"end/{index}"))
                    self._ends[index] = NodeEnd(How(how), str(cause), int(worker))

    def _leave(self, store: Store) -> None:
        """Whoever hosts the store goes last, when nobody asks it any more."""
        until = time.monotonic() + FAREWELL_S
        while not self._place.hosted and time.monotonic() < until:
            self._look_at_ends(store)
            if not self._meeting.hosts:
                if store.check(["over"]):
                    store.add("left", 1)
                    return
            elif len(self._ends) == self._place.count - 1:
                store.set("over", "1")
                if store.add("left", 0) >= sum(end.how is not How.SILENT for end in self._ends.values()):
                    return
            time.sleep(0.02)

    def _name(self, index: int) -> str:
        node = index // self._place.tasks
        host = f" ({self._came[index].host})" if index < len(self._came) else ""
        return f"node {node}{host}"
