"""Times of a run under DDP, from DDP's own measurements of some of its steps."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from torch.nn.parallel import DistributedDataParallel

from scalebook.training.callbacks.computed_figures import shares
from scalebook.training.callbacks.step_counts import LocalFigures
from scalebook.training.lightning import ModelParallel
from scalebook.training.pricing.part_record import PartRecord, WorkerPart
from scalebook.training.tracking import names

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


def of_stages(*waits: tuple[float, float, float] | None) -> LocalFigures:
    """After 1 s of a split model whose workers wait for these shares: of a pipeline, of slower parts, of links."""
    strategy = MagicMock(spec=ModelParallel)
    workers = [WorkerPart(0.0, 0.0, 0.0, 0.0, 0.0, None, *(each or ())) for each in waits]
    strategy.parts = PartRecord("", [], workers, []) if waits else None
    trainer: Any = SimpleNamespace(world_size=2, global_step=1, strategy=strategy)
    figures = LocalFigures(trainer)
    figures.add_time("compute", 1.0)
    return figures


def test_a_pipeline_s_waits_are_no_computing() -> None:
    (times,) = of_stages((0.2, 0.1, 0.3), (0.0, 0.1, 0.1)).worker_times()
    assert [times.wait, times.communicate] == pytest.approx([0.2, 0.2])
    assert shares([times]) == pytest.approx(
        {names.COMPUTE_SHARE: 0.6, names.WAIT_SHARE: 0.2, names.COMMUNICATE_SHARE: 0.2, names.DATA_SHARE: 0.0}
    )


def test_of_collectives_within_layers_no_shares_are_told() -> None:
    for figures in (of_stages(), of_stages(None, None)):
        assert shares(figures.worker_times()) == {}
