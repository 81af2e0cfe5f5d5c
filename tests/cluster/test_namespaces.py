"""The machines themselves: what can be done to their links, and that nothing of them is left."""

import contextlib
import multiprocessing
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil
import pytest

from scalebook.training.engine.net import wire
from scalebook.training.engine.net.wire import connected, listening, set_up
from tests.cluster.namespaces import NAMES, PREFIX, Listening, Namespaces, Way, clear_stale, namespaces

PATIENCE_S = 0.6


@contextmanager
def talking(machines: Namespaces) -> Iterator[Callable[[int], float]]:
    """From machine 1 to machine 0, which says all that it hears again: the seconds of so many bytes."""
    listener = machines.inside(0, lambda: listening(machines.addresses[0]))
    near = machines.inside(1, lambda: socket.create_connection(listener.getsockname(), 5))
    far, _ = listener.accept()

    def say_again() -> None:
        with far, contextlib.suppress(OSError):
            while heard := far.recv(1 << 16):
                far.sendall(heard)

    threading.Thread(target=say_again, daemon=True).start()

    def seconds(count: int) -> float:
        began, heard = time.monotonic(), 0
        near.sendall(bytes(count))
        while heard < count:
            heard += len(near.recv(1 << 16))
        return time.monotonic() - began

    near.settimeout(PATIENCE_S)
    with near, listener:
        yield seconds
        near.settimeout(5)


def test_each_has_an_address_of_its_own(apart: Namespaces) -> None:
    assert apart.addresses == ["10.77.0.1", "10.77.0.2"]
    assert apart.listening(0) == set()
    with talking(apart):
        (one,) = apart.listening(0)
        assert one[:2] == Listening("tcp", "10.77.0.1", 0)[:2]
        assert apart.listening(1) == set()


@pytest.mark.sampled
@pytest.mark.parametrize("way", Way)
def test_a_link_is_cut_and_mended(apart: Namespaces, way: Way) -> None:
    with talking(apart) as seconds:
        assert seconds(10) < PATIENCE_S
        apart.cut(1, way)
        with pytest.raises(TimeoutError):
            seconds(10)
        apart.restore(1)
        (one,) = apart.listening(0)
        apart.inside(1, lambda: socket.create_connection(one[1:], 5)).close()


def test_a_link_has_a_rate(apart: Namespaces) -> None:
    with talking(apart) as seconds:
        fast = seconds(100_000)
        apart.shape(1, 4e6)
        assert seconds(100_000) > 0.15  # of 0.2 s at that rate; fast it takes a thousandth
        apart.shape(1, None)
        assert fast < 0.15


def test_frames_are_late_and_lost(missing: str) -> None:
    if missing:
        pytest.skip(missing)
    with namespaces(2, relayed=True) as machines, talking(machines) as seconds:
        assert machines.relay is not None
        machines.relay.delay(0.05)
        assert 0.1 <= seconds(10) < PATIENCE_S
        machines.relay.delay(0)
        passed, _ = machines.relay.counts
        assert passed > 0
        machines.relay.lose(1.0, from_=1)
        with pytest.raises(TimeoutError):
            seconds(10)
        assert machines.relay.counts[1] >= 1


def test_what_a_killed_process_has_left_is_cleared(apart: Namespaces) -> None:
    receiving, sending = multiprocessing.get_context("fork").Pipe(duplex=False)

    def leave_behind() -> None:
        os.setsid()
        made = Namespaces(2)
        sleeper = subprocess.Popen(["ip", "netns", "exec", made.names[1], "sleep", "60"])
        sending.send((made.names, sleeper.pid))
        time.sleep(60)

    process = multiprocessing.get_context("fork").Process(target=leave_behind)
    process.start()
    names, sleeper = receiving.recv()
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    assert {path.name for path in NAMES.glob(f"{PREFIX}-*")} >= {*names, *apart.names}
    clear_stale()
    left = {path.name for path in NAMES.glob(f"{PREFIX}-*")}
    assert left >= set(apart.names)
    assert not left & set(names)
    assert not psutil.pid_exists(sleeper) or psutil.Process(sleeper).status() == psutil.STATUS_ZOMBIE


def test_the_kernel_gives_up_what_nobody_has_received(apart: Namespaces, monkeypatch: pytest.MonkeyPatch) -> None:
    """TCP_USER_TIMEOUT; without it a connection is kept for a quarter of an hour."""
    monkeypatch.setattr(wire, "DEAD_S", 1.0)
    listener = apart.inside(0, lambda: listening(apart.addresses[0]))
    host, port = listener.getsockname()
    set_, unset = apart.inside(1, lambda: (connected(host, port), socket.create_connection((host, port), 5)))
    with listener, set_, unset, listener.accept()[0] as other:
        set_up(other)
        apart.cut(1)
        for one in (set_, unset):
            one.settimeout(10)
            one.send(b"x")
        began = time.monotonic()
        with pytest.raises(TimeoutError, match="Connection timed out"):
            set_.recv(1)
        assert time.monotonic() - began < 5
        unset.settimeout(0.1)
        with pytest.raises(TimeoutError, match=r"^timed out"):
            unset.recv(1)
