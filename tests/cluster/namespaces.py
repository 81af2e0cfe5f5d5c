"""Several machines on one: network namespaces with addresses of their own, and cables that can be shaped and cut.

Namespaces are named by the process that makes them; those of one that is gone are cleared by the next.
"""

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from tests.cluster.relay import Relay

PREFIX: Final = "scalebook-test"
NAMES: Final = Path("/run/netns")
NOWHERE: Final = "02:00:00:00:00:fe"
"""An address of Ethernet that nobody has: what is sent there is lost without a word."""
_CLONE_NEWNET: Final = 0x40000000
_PR_SET_PDEATHSIG: Final = 1
_TAKEN_S: Final = 20.0
T = TypeVar("T")


class Way(StrEnum):
    """What of a machine's link is cut."""

    BOTH = "both ways"
    OUT = "what it sends"
    IN = "what it is sent"


class Listening(NamedTuple):
    """A socket that waits for others."""

    protocol: str
    host: str
    port: int


class Machines:
    """So many, on loopback: processes that share addresses and ports, and links that nobody can cut."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.addresses = ["127.0.0.1"] * count

    def enter(self, machine: int) -> None:
        """This process is there from here on, and ends with the one that has forked it."""
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    def inside(self, machine: int, what: Callable[[], T]) -> T:
        """What it returns there."""
        return what()

    def close(self) -> None:
        """End what is left there."""


class Namespaces(Machines):
    """So many, each in a namespace, at a switch in one more: 10.77.0.1 and on. `relayed`: the switch is a process,
    which delays and loses frames as `relay` is told; otherwise a bridge of the kernel's."""

    def __init__(self, count: int, relayed: bool = False) -> None:
        super().__init__(count)
        clear_stale()
        own = f"{PREFIX}-{os.getpid()}-{_began(os.getpid())}-{_number()}"
        self.names, self._switch = [f"{own}-{n}" for n in range(count)], f"{own}-switch"
        self.addresses = [f"10.77.0.{n + 1}" for n in range(count)]
        self._hardware = [f"02:00:00:00:00:{n + 1:02x}" for n in range(count)]
        self.relay: Relay | None = None
        try:
            self._build(relayed)
        except BaseException:
            self.close()
            raise

    def _build(self, relayed: bool) -> None:
        for name in (*self.names, self._switch):
            _run("ip", "netns", "add", name)
            _ip(name, "link set lo up")
        if not relayed:
            _ip(self._switch, "link add name bridge0 type bridge")
            _ip(self._switch, "link set bridge0 up")
        for n, name in enumerate(self.names):
            _ip(self._switch, f"link add name port{n} type veth peer name eth0 netns {name}")
            _ip(name, f"link set eth0 address {self._hardware[n]} up")
            _ip(name, f"addr add {self.addresses[n]}/24 dev eth0")
            _ip(self._switch, f"link set port{n} up" + ("" if relayed else " master bridge0"))
        for n, _ in enumerate(self.names):
            self.restore(n)
        if relayed:
            self.relay = Relay(self.count, lambda: _enter(self._switch), self.inside)

    def close(self) -> None:
        if self.relay is not None:
            self.relay.close()
        for name in (*self.names, self._switch):
            _end(name)

    # --- links -------------------------------------------------------------------------------------------------------

    def cut(self, machine: int, way: Way = Way.BOTH) -> None:
        """Nothing gets through any more, and nobody is told."""
        if way is Way.BOTH:
            _ip(self._switch, f"link set port{machine} down")
        for other in range(self.count):
            if other != machine and way is Way.OUT:
                self._aim(machine, other, NOWHERE)
            elif other != machine and way is Way.IN:
                self._aim(other, machine, NOWHERE)

    def restore(self, machine: int) -> None:
        """As it was, but for its rate."""
        _ip(self._switch, f"link set port{machine} up")
        for other in range(self.count):
            if other != machine:
                self._aim(machine, other, self._hardware[other])
                self._aim(other, machine, self._hardware[machine])

    def _aim(self, machine: int, other: int, hardware: str) -> None:
        entry = f"{self.addresses[other]} lladdr {hardware} dev eth0 nud permanent"
        _ip(self.names[machine], f"neigh replace {entry}")

    def shape(self, machine: int, bits_per_s: float | None) -> None:
        """Each way; None: as fast as it gets. Needs tc, of iproute2."""
        for name, device in ((self.names[machine], "eth0"), (self._switch, f"port{machine}")):
            if bits_per_s is None:
                _run("tc", "-n", name, "qdisc", "del", "dev", device, "root")
                continue
            whole = 70_000 if bits_per_s > 1e8 else 16_000  # of the kernel's packets of 64 kB, which it need not cut
            burst = max(whole, round(bits_per_s / 8 * 0.5e-3))  # bytes
            shaped = f"tbf rate {round(bits_per_s)}bit burst {burst} latency 200ms"
            _run("tc", "-n", name, "qdisc", "replace", "dev", device, "root", *shaped.split())

    # --- inside ------------------------------------------------------------------------------------------------------

    def enter(self, machine: int) -> None:
        super().enter(machine)
        _enter(self.names[machine])

    def inside(self, machine: int, what: Callable[[], T]) -> T:
        """Done by a thread that is there, and so are those that it starts."""
        done: Future[T] = Future()

        def work() -> None:
            try:
                _enter(self.names[machine])
                done.set_result(what())
            except BaseException as error:  # noqa: BLE001  # it is raised by whoever waits
                done.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        return done.result(_TAKEN_S)

    def listening(self, machine: int) -> set[Listening]:
        """All that listens there, whichever process has it; of UDP, all that is open."""
        return self.inside(machine, listening_here)

    def processes(self, machine: int) -> list[int]:
        """All that are there."""
        return _processes(self.names[machine])


def why_not() -> str:
    """Why no namespaces can be made here; empty where they can."""
    if os.geteuid() != 0:
        return "network namespaces: this is not root"
    try:
        Namespaces(2).close()
    except (OSError, subprocess.CalledProcessError) as error:
        told = getattr(error, "stderr", "") or str(error)
        return f"network namespaces: {' '.join(told.split())}"
    return ""


@contextlib.contextmanager
def namespaces(count: int, relayed: bool = False) -> Iterator[Namespaces]:
    """While the block lasts; whatever runs there ends with it."""
    made = Namespaces(count, relayed)
    try:
        yield made
    finally:
        made.close()


def clear_stale() -> None:
    """Those of processes that are gone, with all that still runs there."""
    for path in NAMES.glob(f"{PREFIX}-*") if NAMES.is_dir() else ():
        found = re.match(rf"{PREFIX}-(\d+)-(\d+)-", path.name)
        if found is not None and _began(int(found[1])) != int(found[2]):
            _end(path.name)


def listening_here() -> set[Listening]:
    """In this thread's namespace."""
    found = set()
    for protocol, state in (("tcp", "0A"), ("tcp6", "0A"), ("udp", ""), ("udp6", "")):
        for line in Path(f"/proc/thread-self/net/{protocol}").read_text().splitlines()[1:]:
            local, at = line.split()[1], line.split()[3]
            if state in ("", at):
                host, port = local.split(":")
                found.add(Listening(protocol, _host(host), int(port, 16)))
    return found


def _host(text: str) -> str:
    return ".".join(map(str, bytes.fromhex(text)[::-1])) if len(text) == 8 else text


def _enter(name: str) -> None:
    """This thread, and what it starts."""
    with open(NAMES / name, "rb") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _end(name: str) -> None:
    if not (NAMES / name).exists():
        return
    until = time.monotonic() + _TAKEN_S
    while (processes := _processes(name)) and time.monotonic() < until:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.002)
    _run("ip", "netns", "del", name)


def _processes(name: str) -> list[int]:
    return [int(word) for word in _run("ip", "netns", "pids", name).split() if int(word) != os.getpid()]


def _began(process: int) -> int:
    """When it did, in ticks since the machine started; 0 where there is none. With its number it is its name."""
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return 0


_made: Final[list[int]] = []


def _number() -> int:
    _made.append(len(_made))
    return _made[-1]


def _ip(name: str, words: str) -> None:
    _run("ip", "-n", name, *words.split())


def _run(*words: Any) -> str:
    """CalledProcessError with what was said; OSError where there is no such program."""
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=_TAKEN_S).stdout
