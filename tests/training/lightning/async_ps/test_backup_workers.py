"""`sync` with backup workers, under Lightning: full updates until the data end, whoever is slow."""

import copy
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule
from torch import Tensor
from torch.optim import SGD
from torch.optim.lr_scheduler import StepLR

from scalebook.training.engine.rules.clock_settings import ClockSettings
from scalebook.training.engine.rules.run_limits import Limits
from scalebook.training.engine.rules.update_rules import Sync
from scalebook.training.lightning import AsyncPS
from tests.training.lightning.async_ps.small import Batch, Diary, Small, diaries, held_out, loader, trainer, weights


class Linear(Small):
    """Without random numbers."""

    def __init__(self) -> None:
        super().__init__(lambda model: SGD(model.parameters(), lr=0.1, momentum=0.5))
        self.net = torch.nn.Sequential(torch.nn.Linear(5, 3))


def with_one_to_spare(
    model: Small, batches: Sequence[Any], slow: int, slow_s: float, cancel: bool
) -> tuple[list[int], float]:
    """Chen et al. 2016, algorithm 3, in plain torch: four workers take the next of `batches` each, the first three
    make an update, `slow` takes `slow_s` seconds and the others one. Returns the updates' sizes and when the last
    worker was done. No two of the slow worker's gradients may end together with the others'."""
    optimizer, left = model.make_optimizer(model), list(batches)
    taken = {worker: left.pop(0) for worker in range(4)}
    sizes, ended_s, last_s, update_s = list[int](), slow_s, 0.0, 0.0
    stale, given = False, dict[int, list[Tensor]]()

    def gradient(worker: int) -> list[Tensor]:
        batch = taken.pop(worker)
        loss = torch.nn.functional.cross_entropy(model.net(batch[0]), batch[1])
        return list(torch.autograd.grad(loss, list(model.parameters())))

    while taken or given:
        fast = [worker for worker in taken if worker != slow]
        if slow in taken and (not fast or ended_s < last_s + 1):
            update_s = ended_s
            made = gradient(slow)
            if not stale:
                given[slow] = made
            elif left:
                taken[slow], ended_s, stale = left.pop(0), ended_s + slow_s, False
        else:
            last_s = update_s = last_s + 1 if fast else update_s
            given |= {worker: gradient(worker) for worker in fast}
        if given and (len(given) >= 3 or not taken):
            for parameter, *parts in zip(model.parameters(), *given.values(), strict=True):
                parameter.grad = torch.stack(parts).mean(0)
            optimizer.step()
            sizes.append(len(given))
            stale = not cancel and slow in taken
            if cancel and slow in taken:
                ended_s = update_s + slow_s
            for worker in sorted(given):
                if left:
                    taken[worker] = left.pop(0)
            given.clear()
    return sizes, update_s


@pytest.mark.parametrize(
    ("slow", "cancel", "sizes", "end_s"),
    [(3, False, [3] * 38 + [2], 39.0), (0, False, [3] * 38 + [2], 39.0), (3, True, [3] * 40, 48.7)],
)
def test_with_workers_to_spare_every_update_is_full_until_the_data_end(
    slow: int, cancel: bool, sizes: list[int], end_s: float, tmp_path: Path
) -> None:
    """Three epochs of 40 batches. The slow worker, ten times as slow, begins one at 0, 9.7, 19.4 and 29.1 s, and the
    others make updates of what is left: 116, in 39 s, where three workers would take 40. With `cancel` nothing is
    dropped; the last update needs the slow worker, which begins its only batch again after 39 s."""
    samples = 320
    torch.manual_seed(7)
    model = Linear()
    alone = copy.deepcopy(model)
    clock = ClockSettings(1.0, stragglers={slow: 9.7})
    strategy = AsyncPS(Sync(1, cancel), workers=4, host="virtual", clock=clock)
    made = trainer(tmp_path, strategy, max_epochs=3, callbacks=[Diary(tmp_path)])
    made.fit(model, loader(samples=samples), held_out())
    played, ended_s = with_one_to_spare(alone, [*loader(samples=samples)] * 3, slow, 9.7, cancel)
    assert played == sizes
    assert ended_s == pytest.approx(end_s)
    torch.testing.assert_close(weights(model), weights(alone), rtol=0, atol=1e-6)
    assert made.global_step == len(sizes)
    times = [times.compute + times.wait for times in strategy.figures.worker_times()]
    assert max(times) == pytest.approx(end_s)
    (diary,) = diaries(tmp_path)
    assert Counter(diary["train"]) == dict.fromkeys(range(samples), 3)


def halved(model: LightningModule) -> Any:
    optimizer = SGD(model.parameters(), lr=0.64)
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": StepLR(optimizer, 1, 0.5), "interval": "epoch"}}


class WithOneSlow(Small):
    """Worker 3 finishes a gradient when the others have made ten updates, or make none any more."""

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        if self.trainer.global_rank == 3:
            figures: Any = self.trainer.strategy
            first = newest = figures.figures.counts().updates
            until = monotonic() + 1.0
            while newest < first + 10 and monotonic() < until:
                sleep(0.002)
                if (now := figures.figures.counts().updates) != newest:
                    newest, until = now, monotonic() + 1.0
        return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])


def test_real_workers_leave_a_slow_one_behind(tmp_path: Path) -> None:
    """Six epochs of twelve batches: in most of them the slow worker has none, and it follows the schedule all the
    same."""
    strategy = AsyncPS(Sync(1), workers=4, limits=Limits(deadline_s=60))
    made = trainer(tmp_path, strategy, 4, max_epochs=6, callbacks=[Diary(tmp_path)])
    torch.manual_seed(7)
    made.fit(WithOneSlow(halved), loader(shuffle=True), held_out())
    notes = diaries(tmp_path)
    assert Counter(sample for one in notes for sample in one["train"]) == dict.fromkeys(range(96), 6)
    batches = [len(one["train"]) // 8 for one in notes]
    assert 1 <= batches[3] <= 6, "with a share of its own it would have 18 of 72"
    full, rest = divmod(72 - batches[3], 3)
    assert full <= strategy.figures.counts().updates <= full + 1 + bool(rest)
    assert [one["validations"] for one in notes] == [6, 0, 0, 0]
    assert [one["lr"] for one in notes] == [pytest.approx(0.01)] * 4
