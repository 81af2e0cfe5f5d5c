"""Who takes part in the exchange between peers, from which round on.

A membership changes at the round after the last that anybody has published, so a round has the same members for all who
publish it. Who has left publishes nothing more until it enters again: whether it has published a round is then decided,
and everybody sees the same.
"""

from scalebook.training.engine.memory.lock import HeldLock
from scalebook.training.engine.memory.region import EPOCHS, Control, PeerCounters


def members_of(peers: PeerCounters, round_: int) -> tuple[int, ...]:
    """The members of a round that is published or about to be; under the admission lock. RuntimeError for one so old
    that its membership is forgotten."""
    newest = peers.memberships[0]
    for number in range(newest, max(newest - EPOCHS, 0), -1):
        place = (number - 1) % EPOCHS
        if peers.first[place] <= round_:
            row = peers.members[place * peers.workers : (place + 1) * peers.workers]
            return tuple(worker for worker, is_in in enumerate(row) if is_in)
    raise RuntimeError(f"peers: the members of round {round_} are no longer known, {EPOCHS} membership changes later.")


def is_member(peers: PeerCounters, worker: int) -> bool:
    """Whether `worker` takes part from the next round on; needs no lock."""
    place = (peers.memberships[0] - 1) % EPOCHS
    return bool(peers.members[place * peers.workers + worker])


def leave(control: Control, worker: int, deadline_s: float = 10.0) -> None:
    """`worker` takes no part until it enters again: it has died, has finished, or waits for something else."""
    _change(control, worker, deadline_s, is_in=False)


def leave_between_rounds(control: Control, worker: int, deadline_s: float) -> bool:
    """`leave`, at a moment when nobody has begun a round with `worker` that it has not published itself: False, with no
    effect, if somebody has. A round that lacks one of its members does not keep the mean on a directed graph."""
    with HeldLock(control.admission_lock, deadline_s):
        if any(
            is_behind(counters.peers, worker) for counters in control.partition_counters if counters.peers is not None
        ):
            return False
        _change_locked(control, worker, is_in=False)
    control.event.wake()
    return True


def is_behind(peers: PeerCounters, worker: int) -> bool:
    """Whether somebody has published a round of which `worker` is a member, and `worker` has not."""
    following = max(peers.published[worker] + 1, peers.entered[worker])
    return is_member(peers, worker) and max(peers.published) >= following


def enter(control: Control, worker: int, deadline_s: float = 10.0) -> None:
    """`worker` takes part from the next round on. No effect if it does already, has finished or rests."""
    _change(control, worker, deadline_s, is_in=True)


def _change(control: Control, worker: int, deadline_s: float, is_in: bool) -> None:
    if not control.settings.local.peers:
        return
    with HeldLock(control.admission_lock, deadline_s):
        if is_in and worker not in control.active():  # it has finished meanwhile, or has no data
            return
        _change_locked(control, worker, is_in)
    control.event.wake()


def _change_locked(control: Control, worker: int, is_in: bool) -> None:
    for counters in control.partition_counters:
        if counters.peers is not None and is_member(counters.peers, worker) != is_in:
            _append(counters.peers, worker, is_in)


def _append(peers: PeerCounters, worker: int, is_in: bool) -> None:
    number = peers.memberships[0]
    before, first = (number - 1) % EPOCHS, max(peers.published) + 1
    place = before if peers.first[before] == first else number % EPOCHS
    row = bytearray(peers.members[before * peers.workers : (before + 1) * peers.workers])
    row[worker] = is_in
    if is_in:
        peers.entered[worker] = first
    peers.members[place * peers.workers : (place + 1) * peers.workers] = bytes(row)
    peers.first[place] = first
    if place != before:
        peers.memberships[0] = number + 1
