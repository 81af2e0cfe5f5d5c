"""Times of a run under DDP, from DDP's own measurements of some of its steps."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from torch.nn.parallel import DistributedDataParallel

from scalebook.training.lightning.callbacks.step_counts import LocalFigures

MILLISECOND = 1_000_000  # ns, as DDP tells


def counted(steps: int, *told: dict[str, Any]) -> LocalFigures:
    """After so many steps of 10 ms, on the first of which DDP has told this."""
    model = MagicMock(spec=DistributedDataParallel)
    trainer: Any = SimpleNamespace(world_size=2, global_step=0, strategy=SimpleNamespace(model=model))
    found = LocalFigures(trainer)
    for step in range(steps):
        model._get_ddp_logging_data.return_value = {"iteration": step, **told[step]} if step < len(told) else {}
        found.add_time("compute", 0.01)
        trainer.global_step += 1
    return found


def said(forward: int, backward: int, communicated: int, overlapped: int) -> dict[str, Any]:
    """In ms."""
    return {
        "forward_compute_time": forward * MILLISECOND,
        "backward_compute_time": backward * MILLISECOND,
        "backward_comm_time": communicated * MILLISECOND,
        "backward_compute_comm_overlap_time": overlapped * MILLISECOND,
    }


def test_what_was_exchanged_after_the_gradients_counts_for_every_step() -> None:
    (times,) = counted(20, said(2, 4, 3, 1), said(2, 4, 3, 1)).worker_times()
    assert times.communicate == pytest.approx(20 * 0.002)
    assert times.compute + times.communicate == pytest.approx(20 * 0.01)


def test_a_first_step_that_waited_long_leaves_time_to_compute() -> None:
    """150 ms of waiting for a worker that starts late are not 150 ms in each of 20 steps of 10 ms."""
    (times,) = counted(20, said(2, 4, 150, 0)).worker_times()
    assert times.communicate == pytest.approx(0.2 * 150 / 156)
    assert times.compute > 0
