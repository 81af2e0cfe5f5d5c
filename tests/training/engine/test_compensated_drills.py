"""A worker that dies and comes back under delay compensation, which needs the version a gradient was computed from.

Under host `process` the last push of its former life may still wait for a server when it is back: what that push was
computed from must stay as it is until then. The trace, replayed in one process, says whether it did.
"""

import random
import time
from collections.abc import Sequence
from mmap import mmap
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter

from scalebook.training.engine import HostName, Settings, SharedRun, join, serve
from scalebook.training.engine.rules.damping import DelayCompensation
from scalebook.training.engine.rules.update_rules import Async
from tests.training.engine.forking import LostProcess, Reaction, run_workers
from tests.training.engine.killing import HERE, Phase, Stepwise
from tests.training.engine.replay import replay
from tests.training.engine.scenes import HOSTS
from tests.training.engine.trained import make_parameters

pytestmark = pytest.mark.sampled

WORKERS, PUSHES, PAUSE_S, DEADLINE_S = 3, 12, 0.0005, 10.0


def set_gradients(parameters: Sequence[Parameter], worker: int) -> None:
    """Of a quadratic whose minimum lies elsewhere for each worker: they depend on the version."""
    for parameter in parameters:
        parameter.grad = 0.1 * (parameter.detach() - worker - 1.0)


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("adaptive", [False, True], ids=["constant", "adaptive"])
def test_it_replays_bit_for_bit(host: HostName, shards: int, adaptive: bool, tmp_path: Path) -> None:
    damping = DelayCompensation(strength=0.5, adaptive=adaptive)
    settings = Settings(rule=Async(), damping=damping, shards=shards, host=host, trace=tmp_path)
    run, rng = SharedRun(WORKERS, settings), random.Random(shards)
    starts, losses = memoryview(mmap(-1, 8)).cast("q"), list[LostProcess]()
    nth, part = rng.randint(2, PUSHES), rng.random()

    def body(worker: int) -> list[Tensor]:
        parameters = make_parameters(WORKERS)
        joined = join(run, run.member(worker, DEADLINE_S), [Stepwise(parameters, PAUSE_S)])
        joined.begin()
        if worker == 1:
            starts[0] += 1
            if starts[0] == 1:
                HERE.aim(Phase.PUSHING, nth, part, lambda at: None)
        for _ in range(PUSHES):
            time.sleep(0.001)
            set_gradients(parameters, worker)
            with HERE.during(Phase.PUSHING):
                joined.clients[0].push()
        joined.finish()
        joined.wait_for_others()
        joined.pull()
        return [parameter.detach().clone() for parameter in parameters]

    def server(number: int) -> None:
        serve(run, number, DEADLINE_S, [Stepwise(make_parameters(WORKERS), PAUSE_S)])

    def lost(one: LostProcess) -> Reaction:
        losses.append(one)
        run.rejoin(one.number)
        return Reaction.RESTART

    finals = run_workers(WORKERS, body, servers=run.servers, serve=server, lost=lost)
    run.close()
    assert [(one.role, one.number) for one in losses] == [("worker", 1)]
    again = make_parameters(WORKERS)
    optimizer = Stepwise(again, PAUSE_S)
    replay(tmp_path, settings, optimizer, lambda worker, _seq: set_gradients(again, worker))
    for final in finals:
        assert all(torch.equal(a, b) for a, b in zip(final, again, strict=True))
    assert len({tuple(final[0].flatten().tolist()) for final in finals}) == 1
