"""Who is let in, and in whose place; and that nobody listens anywhere else."""

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from torch.nn import Parameter

from scalebook.training.engine.net.channel import Channel, ChannelLost
from scalebook.training.engine.net.handshake import Hello, Refused, greet
from scalebook.training.engine.net.version_mirror import settings_digest
from scalebook.training.engine.net.wire import connected
from scalebook.training.engine.worker.worker_end import JoinedEnd
from tests.training.engine.net.far import DEADLINE_S, LOOPBACK, RUN, SECRET, Far, joined
from tests.training.engine.worker.peers import together

pytestmark = pytest.mark.long


def hello(far: Far, worker: int, generation: int, run: str = RUN) -> Hello:
    return Hello(run, settings_digest(far.launch.figures.settings), worker, generation)


def knock(far: Far, said: Hello) -> int:
    """The generation that is told."""
    wire, generation = greet(connected(LOOPBACK, far.reach(0).port), SECRET, said, None)
    wire.close()
    return generation


def given(far: Far) -> int:
    """To a new process."""
    return knock(far, hello(far, 0, 0)._replace(use="number"))


@pytest.mark.usefixtures("quick")
def test_a_newer_generation_fences_the_older(run: Callable[..., Far]) -> None:
    far = run(1)
    old, first = far.worker(0, DEADLINE_S), far.newest(0)
    late, newer = given(far), given(far)
    assert first < late < newer
    assert old.living() == [0]  # who has asked alone has taken nobody's place
    with pytest.raises(Refused, match="has not ended yet") as refused:
        knock(far, hello(far, 0, newer))
    assert refused.value.later
    for _ in range(100):
        if far.endings:
            break
        time.sleep(0.05)
    with pytest.raises((ChannelLost, Refused)):
        old.living()
    assert str(far.endings[0]) == "worker 0 has connected as a new process"
    new = far.worker(0, DEADLINE_S)
    assert new.living() == [0]
    assert far.newest(0) > newer
    for older in (first, late, newer, far.newest(0) + 1, far.newest(0) - 2**50, 0, -1, 2**70):
        for use in ("calls", "pushes", "pulse"):
            with pytest.raises(Refused, match="given up, or another process has replaced it"):
                knock(far, hello(far, 0, older)._replace(use=use))
    assert new.living() == [0]


def test_a_number_that_was_given_and_never_heard_does_no_harm(run: Callable[..., Far]) -> None:
    far = run(1)
    far.stand_in(0, DEADLINE_S)
    unheard = given(far)
    channel = Channel(far.reach(0), hello(far, 0, 0), 1 << 20)
    channel.open(DEADLINE_S)
    assert channel.call("living") == [0]
    with pytest.raises(Refused, match="has been given up"):
        knock(far, hello(far, 0, unheard))
    assert channel.call("living") == [0]
    channel.close()


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (lambda far: hello(far, 1, 9), "this node expects worker 0"),
        (lambda far: hello(far, 0, 9, "another"), "this node expects worker 0 of run 'a run'"),
        (lambda far: hello(far, 0, 9)._replace(digest="x"), "the settings differ"),
    ],
    ids=["worker", "run", "settings"],
)
def test_who_belongs_elsewhere_is_told_so(run: Callable[..., Far], said: Callable[[Far], Hello], why: str) -> None:
    far = run(1)
    far.stand_in(0, DEADLINE_S)
    with pytest.raises(Refused, match=why):
        knock(far, said(far))


def test_nobody_listens_but_where_it_was_said(run: Callable[..., Far]) -> None:
    before = listening_here()
    far = run(2)
    one = joined_all(far)
    assert listening_here() - before == {(LOOPBACK, far.reach(worker).port) for worker in (0, 1)}
    for peer in one:
        peer[0].detach()


def joined_all(far: Far) -> list[tuple[JoinedEnd, list[Parameter]]]:
    ends = [far.worker(worker, DEADLINE_S) for worker in range(len(far.listeners))]
    return together(*[lambda e=end: joined(e) for end in ends])


def listening_here() -> set[tuple[str, int]]:
    """Addresses and ports at which this process listens, of either family."""
    links = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    mine = {link[8:-1] for link in links if link.startswith("socket:[")}
    found = set()
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in mine:
                address, port = fields[1].split(":")
                host = socket.inet_ntoa(bytes.fromhex(address)[::-1]) if name == "tcp" else address
                found.add((host, int(port, 16)))
    return found
