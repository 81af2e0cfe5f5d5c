"""Real peers, one of which is killed at any moment: nobody waits for it, and what the others mix stays fair."""

import json
import math
import random
import signal
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import Parameter
from torch.optim import SGD

from scalebook.training.engine import Settings, SharedRun, join
from scalebook.training.engine.rules.exchanges import AdPsgd, DPsgd, Gossip, PeerExchange, Sgp
from scalebook.training.engine.rules.peering import Peering
from scalebook.training.engine.rules.topologies import Complete, Ring, Topology
from scalebook.training.engine.worker.peer_client import RoundPeer
from tests.training.engine.forking import LostProcess, Reaction, run_workers

pytestmark = pytest.mark.long

WORKERS, STEPS, DEADLINE_S, VICTIM = 4, 150, 20.0, 2
SLOW_S = 0.3


def shot(exchange: PeerExchange, topology: Topology, seed: int, folder: Path, returns: bool) -> list[torch.Tensor]:
    """A run whose worker 2 dies after `seed` parts of its time; the survivors' parameters. Mixing is written down."""
    run = SharedRun(WORKERS, Settings(local=Peering(exchange, topology)))
    deaths: list[int] = []

    def react(lost: LostProcess) -> Reaction:
        deaths.append(lost.number)
        if returns and len(deaths) == 1:
            run.rejoin(lost.number)
            return Reaction.RESTART
        run.mark_dead(lost.number)
        return Reaction.GO_ON

    def body(worker: int) -> list[float]:
        parameter = Parameter(torch.zeros(3000))
        joined = join(run, run.member(worker, DEADLINE_S), [SGD([parameter], lr=1.0)])
        notes: list[Any] = []
        client: Any = joined.clients[0]
        if isinstance(client, RoundPeer):
            plain = client._mix

            def noted(shares: Any, present: Any, which: int) -> None:
                notes.append([client._round, {other: shares[other] for other in present}])
                plain(shares, present, which)

            client._mix = noted  # type: ignore[method-assign]
        joined.begin()
        if worker == VICTIM and not deaths:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, 0.0005 + 0.06 * ((seed * 0.618) % 1))
        for step in range(STEPS):
            parameter.grad = torch.full_like(parameter, -float(worker)) if step == 0 else torch.zeros_like(parameter)
            client.push()
            if step > 4 * seed:
                time.sleep(0.0002)
        joined.finish()
        joined.wait_for_others()
        (folder / f"{worker}.json").write_text(json.dumps(notes))
        return [float(value) for value in parameter.detach()[:2]]

    try:
        results = run_workers(WORKERS, body, lost=react)
    finally:
        run.close()
    assert deaths or not returns
    return [torch.tensor(values) for worker, values in enumerate(results) if values is not None]


CASES = [
    (DPsgd(), Ring()),
    (DPsgd("combine_first"), Complete()),
    (Sgp(), Ring()),
    (AdPsgd(), Complete()),
    (Gossip(), Ring()),
]


@pytest.mark.parametrize("returns", [False, True])
@pytest.mark.parametrize(("exchange", "topology"), CASES, ids=repr)
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.drill) for seed in range(2, 21))])
def test_the_others_go_on_and_come_together(
    seed: int, exchange: PeerExchange, topology: Topology, returns: bool, tmp_path: Path
) -> None:
    values = torch.stack(shot(exchange, topology, seed, tmp_path, returns))
    assert len(values) >= WORKERS - 1
    assert float(values.min()) > -1e-3
    in_step = exchange.waits and not returns  # else one may make its first step after it has averaged with others
    most = WORKERS - 1 if in_step else sum(range(WORKERS)) + VICTIM
    assert float(values.max()) < most + 1e-3, "means of what they had"
    if in_step:
        assert float(values.std(0).max()) < 0.01
    if isinstance(exchange, DPsgd):
        fair(tmp_path)


def fair(folder: Path) -> None:
    """What i takes of j in a round is what j takes of i, for all who were there to write it down."""
    taken: dict[tuple[int, int, int], float] = {}
    wrote: dict[int, set[int]] = defaultdict(set)
    for file in folder.glob("*.json"):
        for number, shares in json.loads(file.read_text()):
            wrote[number].add(int(file.stem))
            for other, share in shares.items():
                taken[number, int(file.stem), int(other)] = share
    for (number, i, j), share in taken.items():
        if j in wrote[number]:
            assert math.isclose(taken.get((number, j, i), 0.0), share), f"round {number}: {i} of {j}"


@pytest.mark.parametrize("pairs", [4_000, pytest.param(35_000, marks=pytest.mark.thorough)])
def test_pairs_that_overlap_in_any_way_do_not_wait_for_each_other(pairs: int) -> None:
    """Processes that take the locks of two peers, drawn at random, of the same four."""
    run = SharedRun(WORKERS, Settings(local=Peering(AdPsgd(), Complete())))

    def body(worker: int) -> int:
        parameter, rng = Parameter(torch.zeros(8)), random.Random(worker)
        joined = join(run, run.member(worker, DEADLINE_S), [SGD([parameter], lr=1.0)])
        client: Any = joined.clients[0]
        for _ in range(pairs):
            with client.room.holding(*rng.sample(range(WORKERS), 2)):
                pass
        return pairs

    try:
        assert run_workers(WORKERS, body) == [pairs] * WORKERS
    finally:
        run.close()


@pytest.mark.parametrize(("exchange", "moment"), [(AdPsgd(), "in start"), (Gossip(), "before begin")], ids=repr)
def test_a_peer_that_is_slow_to_begin_has_written_nothing(exchange: PeerExchange, moment: str) -> None:
    """Meanwhile worker 0 trains, and writes the mean of all to where the first version was."""
    run = SharedRun(2, Settings(local=Peering(exchange, Complete())))

    def body(worker: int) -> float:
        parameter = Parameter(torch.zeros(8))
        joined = join(run, run.member(worker, DEADLINE_S), [SGD([parameter], lr=1.0)])
        (client,) = joined.clients
        if worker == 1 and moment == "in start":
            refetch = client.host.versions.fetch_held

            def slowly() -> None:
                time.sleep(SLOW_S)
                refetch()

            client.host.versions.fetch_held = slowly  # type: ignore[method-assign]
        joined.start()
        if worker == 1 and moment == "before begin":
            time.sleep(SLOW_S)
        joined.begin()
        for _ in range(3):
            parameter.grad = torch.ones_like(parameter)
            client.push()
        if worker == 0:
            joined.snapshot()
            joined.pull()
        joined.finish()
        return float(parameter.detach()[0])

    try:
        assert all(end < 0 for end in run_workers(2, body))
    finally:
        run.close()
