"""Where the time of steps goes on a device that computes while Python goes on; on emulated GPUs."""

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from scalebook.training.callbacks import measure as measure_module
from scalebook.training.callbacks.measure import Measure
from scalebook.training.callbacks.step_clocks import DataClock, DeviceSteps
from scalebook.training.engine.memory.device import Cuda
from scalebook.training.lightning import DDP
from scalebook.training.tracking import names
from tests.training.callbacks.small import Kept, OneWeight, loader, trainer
from tests.training.engine.emulated_gpu import Gpus
from tests.training.engine.emulated_gpu import gpus as gpus

STEP_S = 0.05
FETCH_S = 0.02
STEPS = 6


def cuda(*numbers: int) -> Cuda:
    return Cuda([torch.device("cuda", number) for number in numbers])


def test_python_goes_on_and_steps_are_read_when_they_are_over(gpus: Gpus) -> None:
    steps, began = DeviceSteps(cuda(0)), time.perf_counter()
    for _ in range(STEPS):
        steps.begin_step(0.0)
        gpus.compute(STEP_S)
        steps.end_step()
    spent = steps.pop_seconds()
    assert gpus.synchronised == []  # nobody has waited
    assert spent.computing < time.perf_counter() - began + STEP_S
    spent = steps.pop_seconds(wait=True)
    assert time.perf_counter() - began >= STEPS * STEP_S
    assert gpus.synchronised == [0]
    assert spent.computing == pytest.approx(STEPS * STEP_S, abs=0.03)
    assert steps.pop_seconds(wait=True).computing == 0.0


def test_of_two_gpus_the_one_that_takes_longest_counts(gpus: Gpus) -> None:
    steps = DeviceSteps(cuda(2, 5))
    steps.begin_step(0.0)
    gpus.compute(STEP_S, 2)
    gpus.compute(2 * STEP_S, 5)
    steps.end_step()
    assert steps.pop_seconds(wait=True).computing == pytest.approx(2 * STEP_S, abs=0.02)


@pytest.mark.parametrize(("busy_s", "idle_s"), [(0.0, STEP_S), (STEP_S, 0.0)])
def test_data_counts_where_the_device_has_nothing_else_to_do(busy_s: float, idle_s: float, gpus: Gpus) -> None:
    """A batch that is fetched while the device still computes costs nothing."""
    steps = DeviceSteps(cuda(0))
    for _ in range(2):
        steps.begin_step(0.0)
        gpus.compute(busy_s)
        steps.end_step()
    time.sleep(STEP_S)  # the loader
    steps.begin_step(STEP_S)
    steps.end_step()
    assert steps.pop_seconds(wait=True).fetching == pytest.approx(idle_s, abs=0.02)


class Ahead(OneWeight):
    """Its step takes a GPU `STEP_S`, and Python next to nothing."""

    def __init__(self, gpus: Gpus) -> None:
        super().__init__()
        self.gpus = gpus

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        self.gpus.compute(STEP_S)
        return super().training_step(batch, batch_idx)


class Late(Dataset[Tensor]):
    """Each sample is `FETCH_S` late."""

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, index: int) -> Tensor:
        time.sleep(FETCH_S)
        return torch.zeros(1)


def shares_of(model: OneWeight, data: "DataLoader[Any]") -> dict[str, float]:
    """Of a run whose parameters are taken to lie on a GPU; and seconds of computing by the last figures."""
    kept, clock = Kept(), DataClock()
    measure = Measure(clock)
    trainer(measure, logger=kept, profiler=clock, max_epochs=1).fit(model, data)
    assert measure.measured is not None
    (times,) = measure.measured.worker_times()
    return kept.points[-1][1] | {"computing": times.compute, "fetching": times.data}


@pytest.mark.alone
def test_one_process_is_computing_while_its_gpu_is(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure_module, "device_of", lambda parameters: cuda(0))
    last = shares_of(Ahead(gpus), loader(STEPS))
    assert last["computing"] >= STEPS * STEP_S
    assert last[names.COMPUTE_SHARE] > 0.8
    monkeypatch.undo()  # by the host's clock alone
    assert shares_of(Ahead(gpus), loader(STEPS))["computing"] < 0.5 * STEPS * STEP_S


@pytest.mark.alone
def test_a_loader_that_is_is_faster_than_the_gpu_is_not_waited_for(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure_module, "device_of", lambda parameters: cuda(0))
    beside = shares_of(Ahead(gpus), DataLoader(Late()))
    assert beside["fetching"] < 0.5 * STEPS * FETCH_S  # the first batch, and some jitter
    alone = shares_of(OneWeight(), DataLoader(Late()))
    assert alone["fetching"] >= 0.9 * STEPS * FETCH_S


class Tells(Callback):
    """Each worker writes down its seconds of computing."""

    def __init__(self, measure: Measure, folder: Path) -> None:
        self.measure, self.folder = measure, folder

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert self.measure.measured is not None
        (times,) = self.measure.measured.worker_times()
        (self.folder / f"{trainer.global_rank}").write_text(f"{times.compute + times.communicate}", encoding="utf-8")


@pytest.mark.alone
def test_workers_of_ddp_are_computing_while_their_gpus_are(
    gpus: Gpus, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(measure_module, "device_of", lambda parameters: cuda(0))
    measure = Measure(clock := DataClock())
    run = trainer(measure, Tells(measure, tmp_path), profiler=clock, max_epochs=1, strategy=DDP(), devices=2)
    run.fit(Ahead(gpus), loader(2 * STEPS))
    seconds = [float((tmp_path / f"{worker}").read_text(encoding="utf-8")) for worker in range(2)]
    assert min(seconds) >= STEPS * STEP_S
