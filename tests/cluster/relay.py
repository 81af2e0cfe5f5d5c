"""A switch that is a process: it passes on frames of Ethernet, late, and not all of them.

The kernel's own `netem` would do that, where a kernel has it.
"""

import array
import contextlib
import fcntl
import heapq
import itertools
import mmap
import multiprocessing
import random
import select
import socket
import struct
from collections.abc import Callable
from time import monotonic
from typing import Any, Final

FRAME: Final = 2048  # bytes, more than Ethernet's
_ETH_P_ALL: Final = 3
_SOL_PACKET: Final = 263
_IGNORE_OUTGOING: Final = 23
_SIOCETHTOOL: Final = 0x8946
_SET_TX_CHECKSUMS: Final = 0x17
_ROOM: Final = 4 << 20  # bytes of frames that wait to be read, at each port


class Relay:
    """`lose` and `delay` may be called at any time, by any process that was forked after it was made."""

    def __init__(
        self,
        ports: int,
        enter: Callable[[], None],
        inside: Callable[[int, Callable[[], None]], None],
    ) -> None:
        """Between port0 and so on of a namespace that `enter` enters; `inside(n, what)`: at what has port n's cable."""
        self._ports = ports
        self._loss = memoryview(mmap.mmap(-1, 8 * ports * ports)).cast("d")  # of what goes from one to another
        self._delay_s = memoryview(mmap.mmap(-1, 8)).cast("d")
        self._counts = memoryview(mmap.mmap(-1, 16)).cast("q")  # passed on, lost
        for port in range(ports):
            inside(port, make_checksums_whole)
        self._process = multiprocessing.get_context("fork").Process(target=self._serve, args=(enter,), daemon=True)
        self._process.start()

    def lose(self, share: float, from_: int | None = None, to: int | None = None) -> None:
        """So many of the frames, by chance; of one port alone where it is named."""
        for one, other in itertools.product(range(self._ports), repeat=2):
            if from_ in (None, one) and to in (None, other):
                self._loss[one * self._ports + other] = share

    def delay(self, seconds: float) -> None:
        """Of each frame, each way."""
        self._delay_s[0] = seconds

    @property
    def counts(self) -> tuple[int, int]:
        """Frames passed on and lost."""
        return self._counts[0], self._counts[1]

    def close(self) -> None:
        self._process.kill()
        self._process.join()

    def _serve(self, enter: Callable[[], None]) -> None:
        enter()
        drawn = random.Random(7)
        ends = [_port(f"port{number}") for number in range(self._ports)]
        asked = select.poll()
        for end in ends:
            asked.register(end, select.POLLIN)
        numbers = {end.fileno(): number for number, end in enumerate(ends)}
        order, waiting = itertools.count(), list[tuple[float, int, int, bytes]]()
        while True:
            left_ms = None if not waiting else max(0.0, waiting[0][0] - monotonic()) * 1000
            for descriptor, _ in asked.poll(left_ms):
                one = numbers[descriptor]
                with contextlib.suppress(OSError):  # the cable is cut
                    frame = ends[one].recv(FRAME)
                    for other in range(self._ports):
                        if other == one:
                            continue
                        is_lost = drawn.random() < self._loss[one * self._ports + other]
                        self._counts[is_lost] += 1
                        if not is_lost:
                            heapq.heappush(waiting, (monotonic() + self._delay_s[0], next(order), other, frame))
            while waiting and waiting[0][0] <= monotonic():
                _, _, other, frame = heapq.heappop(waiting)
                with contextlib.suppress(OSError):
                    ends[other].send(frame)


def _port(name: str) -> socket.socket:
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
    end.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _ROOM)
    end.bind((name, 0))
    end.setblocking(False)
    return end


def make_checksums_whole(device: str = "eth0") -> None:
    """By the kernel and not by hardware that is not there, so that frames may be read on their way; in this namespace.
    With that it cuts what it sends into frames of Ethernet, too."""
    value = array.array("I", [_SET_TX_CHECKSUMS, 0])
    request: Any = struct.pack("16sP", device.encode(), value.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        fcntl.ioctl(asking, _SIOCETHTOOL, request)
