"""Connections that break, workers that fall silent, and those that take their place: nothing is lost or done twice."""

import random
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest
import torch
from torch.nn import Parameter

from scalebook.training.engine.net.channel import ChannelLost
from scalebook.training.engine.net.remote_end import RemoteEnd
from scalebook.training.engine.rules.settings import Deal
from scalebook.training.engine.rules.update_rules import Async, Sync
from scalebook.training.engine.worker.worker_end import JoinedEnd, TakenBatch
from tests.training.engine.net.far import DEADLINE_S, LOOPBACK, RUN, Far, joined
from tests.training.engine.worker.peers import counting, serving, together

pytestmark = pytest.mark.long


class Relay:
    """Passes on what comes, until it is told to `freeze` (nothing passes, nobody is told), to `cut`, or to
    `cut_here` (who has connected is told, the other side is not)."""

    def __init__(self, to: tuple[str, int]) -> None:
        self._to, self._pairs = to, list[socket.socket]()
        self._all, self._untold, self._threads = list[socket.socket](), set[socket.socket](), list[threading.Thread]()
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port: int = self._listener.getsockname()[1]
        self._flows = threading.Event()
        self._flows.set()
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
                self._all.append(near)
                far = socket.create_connection(self._to)
                self._all.append(far)
            except OSError:
                return
            self._pairs += [near, far]
            for one, other in ((near, far), (far, near)):
                thread = threading.Thread(target=self._pass_on, args=(one, other), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        try:
            while content := one.recv(65_536):
                self._flows.wait(DEADLINE_S)
                other.sendall(content)
        except OSError:
            pass
        finally:
            self._shut([one, other])

    def cut(self) -> None:
        pairs, self._pairs = self._pairs, []
        self._shut(pairs)

    def cut_here(self) -> None:
        pairs, self._pairs = self._pairs, []
        self._untold.update(pairs[1::2])
        self._shut(pairs)

    def _shut(self, ends: list[socket.socket]) -> None:
        """Closed at the end only: another thread may wait at it, whose side would then never be told."""
        for one in ends:
            if one not in self._untold:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def freeze(self) -> None:
        self._flows.clear()

    def thaw(self) -> None:
        self._flows.set()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join(DEADLINE_S)
        self._listener.close()
        self._flows.set()
        self._untold.clear()
        self._shut(self._all)
        for thread in self._threads:
            thread.join(DEADLINE_S)
        for one in self._all:
            one.close()


def push(one: tuple[JoinedEnd, list[Parameter]]) -> int:
    for parameter in one[1]:
        parameter.grad = torch.ones_like(parameter)
    return one[0].clients[0].push().version


def values(parameters: Sequence[Parameter]) -> set[float]:
    return {float(value) for parameter in parameters for value in parameter.detach().flatten()}


def through(far: Far, relay: Relay, worker: int) -> RemoteEnd:
    far.stand_in(worker, DEADLINE_S)
    reach = far.reach(worker)._replace(port=relay.port)
    end = RemoteEnd(reach, RUN, far.launch.figures.settings, worker, len(far.listeners), DEADLINE_S)
    far.ends[worker] = end
    return end


OVERLAP: dict[str, object] = {"host": "overlap"}


@pytest.mark.parametrize("settings", [{"rule": Async()}, {"rule": Sync()}, OVERLAP], ids=str)
def test_each_push_counts_once_however_often_the_connection_breaks(
    run: Callable[..., Far], settings: dict[str, object]
) -> None:
    far, drawn, pushes = run(2, **settings), random.Random(3), list[int]()
    with serving(far.launch, counting):
        relay = Relay((LOOPBACK, far.reach(1).port))
        pair = together(lambda: joined(far.worker(0, DEADLINE_S)), lambda: joined(through(far, relay, 1)))
        together(*[one[0].start for one in pair])
        together(*[one[0].begin for one in pair])

        def cut_again_and_again() -> int:
            """After a few pushes, at whatever moment of the next."""
            cuts, until = 0, time.monotonic() + DEADLINE_S
            for at in range(3, 96, 4):
                while len(pushes) < at and time.monotonic() < until:
                    time.sleep(0.001)
                time.sleep(drawn.uniform(0, 0.01))
                relay.cut()
                cuts += 1
            return cuts

        def train_from_afar() -> None:
            for _ in range(100):
                pushes.append(push(pair[1]))

        cuts, _, _ = together(cut_again_and_again, lambda: [push(pair[0]) for _ in range(100)], train_from_afar)
        assert cuts == 24
        together(*[one[0].finish for one in pair])
        together(*[one[0].wait_for_others for one in pair])
        updates = 100 if settings.get("rule") == Sync() else 200
        assert far.launch.figures.counts().updates == updates
        assert {row.duplicates for row in far.launch.figures.pushes()} == {0}
        pair[1][0].pull()
        assert values(pair[1][1]) == {-float(updates)}
        for one in pair:
            one[0].detach()
        relay.close()


def test_with_overlap_a_worker_computes_while_its_push_is_under_way(run: Callable[..., Far]) -> None:
    far = run(1, **OVERLAP)
    with serving(far.launch, counting):
        relay = Relay((LOOPBACK, far.reach(0).port))
        one = joined(through(far, relay, 0))
        one[0].start()
        one[0].begin()
        assert push(one) == 0  # nothing has come back
        one[0].pull()
        relay.freeze()
        came = push(one)  # returns though nothing passes any more
        assert far.launch.figures.counts().updates <= 1
        relay.thaw()
        push(one)
        assert push(one) > came
        one[0].finish()
        one[0].wait_for_others()
        assert far.launch.figures.counts().updates == 4
        one[0].detach()
        relay.close()


def test_with_overlap_a_batch_is_not_done_whose_push_has_not_come(run: Callable[..., Far]) -> None:
    """The worker is lost with its push under way: another computes that batch."""
    far = run(2, **OVERLAP)
    with serving(far.launch, counting):
        relay = Relay((LOOPBACK, far.reach(1).port))
        pair = together(lambda: joined(far.worker(0, DEADLINE_S)), lambda: joined(through(far, relay, 1)))
        together(*[one[0].start for one in pair])
        together(*[one[0].begin for one in pair])
        cursors = [far.ends[worker].cursor for worker in range(2)]
        for worker, cursor in enumerate(cursors):
            cursor.enter_epoch(worker, 0, 4, Deal.IN_TURNS)
        assert [cursors[1].take_batch(1), cursors[1].take_batch(1)] == [TakenBatch(0, 1), TakenBatch(0, 3)]
        push(pair[1])
        cursors[1].mark_done(1)
        assert cursors[1].state() == {0: [(0, 1), (2, 4)]}
        relay.freeze()
        push(pair[1])
        cursors[1].mark_done(1)
        far.end(1)
        far.launch.mark_dead(1)
        assert [cursors[0].take_batch(0) for _ in range(4)] == [
            TakenBatch(0, 3),
            TakenBatch(0, 0),
            TakenBatch(0, 2),
            None,
        ]
        pair[0][0].finish()
        assert far.launch.figures.counts().updates == 1
        relay.close()


def test_a_newer_connection_takes_the_place_of_one_whose_end_nobody_has_told(run: Callable[..., Far]) -> None:
    far = run(1)
    relay = Relay((LOOPBACK, far.reach(0).port))
    one = joined(through(far, relay, 0))
    one[0].start()
    one[0].begin()
    assert push(one) == 1
    relay.cut_here()
    began = time.monotonic()
    assert push(one) == 2
    assert time.monotonic() - began < DEADLINE_S / 2
    one[0].detach()
    relay.close()


@pytest.mark.usefixtures("quick")
def test_a_worker_that_falls_silent_is_dead_on_both_sides(run: Callable[..., Far]) -> None:
    far = run(2)
    relay = Relay((LOOPBACK, far.reach(1).port))
    pair = together(lambda: joined(far.worker(0, DEADLINE_S)), lambda: joined(through(far, relay, 1)))
    together(*[one[0].start for one in pair])
    together(*[one[0].begin for one in pair])
    push(pair[1])
    relay.freeze()
    began = time.monotonic()
    with pytest.raises(ChannelLost, match=r"silent|reached|call succeeds"):
        push(pair[1])
    while not (far.endings and far.lost) and time.monotonic() < began + DEADLINE_S:
        time.sleep(0.05)
    assert far.lost == ["worker 1 was silent for 1.5 s"] == [str(error) for error in far.endings]
    far.launch.mark_dead(1)
    assert push(pair[0]) == 2
    relay.close()


def test_one_that_computes_for_long_is_not_dead(run: Callable[..., Far], quick: None) -> None:
    far = run(1)
    one = joined(far.worker(0, DEADLINE_S))
    one[0].start()
    one[0].begin()
    time.sleep(2.5)
    assert push(one) == 1
    assert far.endings == []
    one[0].detach()
