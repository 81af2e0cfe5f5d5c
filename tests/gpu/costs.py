"""Points 4 and 5: what time and memory are booked as."""

import time
from pathlib import Path
from typing import Any, ClassVar, Final

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import Strategy
from torch import Tensor
from torch.nn import Parameter
from torch.optim import SGD
from typing_extensions import override

from scalebook.training.base.failures import FailureClass, classify
from scalebook.training.callbacks.step_clocks import DeviceSteps
from scalebook.training.engine import Settings, SharedRun, join
from scalebook.training.engine.memory.device import Device, Mark, Registered, device_of
from scalebook.training.engine.worker.worker_end import MemoryNeed
from scalebook.training.lightning import AsyncPS
from scalebook.training.lightning.processes.run_workers import run_workers
from tests.gpu.kills import await_free, free_share
from tests.gpu.models import Dyadic, make_trainer, numbers
from tests.gpu.running import Check, Machine
from tests.training.engine.late_device import LateDevice

SLEEP_S: Final = 0.05
BATCHES: Final = 12
SHARE: Final = 0.8
CYCLES: Final = 100_000_000
MORE: Final = 1.05
DEADLINE_S: Final = 60.0
FLOATS: Final = {"cuda": 2**24 + 2**18, "cpu": 2**20 + 2**14}
"""A little more than a power of two, which torch's own cache would double."""


class Slow(torch.autograd.Function):
    """Nothing, but its backward pass takes `SLEEP_S` on the device, while Python goes on where that is a GPU."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, cycles: int) -> Tensor:
        ctx.cycles = cycles
        return values.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        if ctx.cycles:
            torch.cuda._sleep(ctx.cycles)  # type: ignore[no-untyped-call]
        else:
            time.sleep(SLEEP_S)
        return gradients[0], None


class Slowly(Dyadic):
    """Its backward pass takes `SLEEP_S`."""

    cycles, started = 0, 0.0

    def on_train_start(self) -> None:
        if self.wanted == "cuda":
            torch.cuda._sleep(CYCLES)  # type: ignore[no-untyped-call]  # the first is slow
            torch.cuda.synchronize()
            started = time.perf_counter()
            torch.cuda._sleep(CYCLES)  # type: ignore[no-untyped-call]
            torch.cuda.synchronize()
            self.cycles = round(CYCLES * SLEEP_S / (time.perf_counter() - started))
        self.started = time.perf_counter()

    def on_train_epoch_end(self) -> None:
        if self.wanted == "cuda":
            torch.cuda.synchronize()
        self.log("seconds", time.perf_counter() - self.started)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        loss: Tensor = Slow.apply(super().training_step(batch, batch_idx), self.cycles)  # type: ignore[no-untyped-call]
        return loss


def computing_is_booked_so(machine: Machine, folder: Path) -> str:
    """A backward pass of 50 ms: of one worker's time less than 0.2 is booked as waiting or communication."""
    strategy = AsyncPS(workers=1)
    trainer = make_trainer(machine, folder, strategy, limit_train_batches=BATCHES)
    trainer.fit(Slowly(machine.device), numbers())
    (times,), whole = strategy.figures.worker_times(), float(trainer.callback_metrics["seconds"])
    computing = whole - times.communicate - times.wait
    assert times.communicate > 0, "nothing was booked"
    assert computing > 0.9 * BATCHES * SLEEP_S, f"{computing:.2f} s of computing, {BATCHES} x {SLEEP_S} s"
    assert computing / whole > SHARE, f"computing is {computing / whole:.2f} of {whole:.2f} s"
    return f"computing is {computing / whole:.3f} of {whole:.2f} s"


class Stepping(Callback):
    """Times the steps as `Measure` does."""

    def __init__(self) -> None:
        self.steps: DeviceSteps | None = None
        self.seconds = 0.0

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if self.steps is None:
            self.steps = DeviceSteps(device_of([*pl_module.parameters()]))
        self.steps.begin_step(0.0)

    def on_train_batch_end(self, *_: Any) -> None:
        assert self.steps is not None
        self.steps.end_step()

    def on_train_end(self, *_: Any) -> None:
        assert self.steps is not None
        self.seconds = self.steps.pop_seconds(wait=True).computing


def steps_of_one_process_are_timed_so(machine: Machine, folder: Path) -> str:
    """In one process nobody waits for the backward pass of 50 ms, and events say how long it took."""
    stepping = Stepping()
    trainer = make_trainer(machine, folder, "auto", limit_train_batches=BATCHES, callbacks=[stepping])
    trainer.fit(Slowly(machine.device), numbers())
    whole = float(trainer.callback_metrics["seconds"])
    assert BATCHES * SLEEP_S * 0.9 < stepping.seconds <= whole, f"{stepping.seconds:.2f} s of {whole:.2f} s"
    return f"computing is {stepping.seconds / whole:.3f} of {whole:.2f} s"


# --- memory ----------------------------------------------------------------------------------------------------------


class Filled(Dyadic):
    """All of the GPU's memory is taken before the first product of matrices, for which cuBLAS wants some of its own."""

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        self.taken, part = [], torch.cuda.mem_get_info()[0]
        left, right = (torch.ones(64, 64, device="cuda") for _ in range(2))
        while part > 2**20:
            try:
                self.taken.append(torch.empty(part, dtype=torch.uint8, device="cuda"))
            except torch.OutOfMemoryError:
                part //= 2
        return (left @ right).sum() * 0 + super().training_step(batch, batch_idx)


def cublas_without_memory_is_typed(machine: Machine, folder: Path) -> str:
    """It is out of memory, however cuBLAS says it; and the memory is free again."""
    free = free_share(machine)
    told = typed(Filled(machine.device), machine, folder)
    await_free(machine, free)
    return told


def typed(
    model: LightningModule, machine: Machine, folder: Path, strategy: Strategy | None = None, devices: int = 1
) -> str:
    """What ended a fit of this model, by one worker of AsyncPS unless told otherwise; it must be out of memory."""
    try:
        make_trainer(machine, folder, strategy or AsyncPS(workers=1), devices).fit(model, numbers())
    except (RuntimeError, MemoryError) as error:
        failure = classify(error)
        assert failure.failure_class is FailureClass.OUT_OF_MEMORY, f"told as {failure.failure_class}: {failure.cause}"
        return failure.cause[:100]
    raise AssertionError("it did not run out of memory")


class Counted(Device):
    """Another device, with the bytes that it was asked to register."""

    is_host: ClassVar[bool] = False

    def __init__(self, device: Device) -> None:
        self._device, self.registered = device, 0

    @override
    def copy_up(self, target: Tensor, source: Tensor) -> None:
        self._device.copy_up(target, source)

    @override
    def copy_down(self, target: Tensor, source: Tensor) -> None:
        self._device.copy_down(target, source)

    @override
    def record(self) -> Mark:
        return self._device.record()

    @override
    def wait(self, mark: Mark) -> None:
        self._device.wait(mark)

    @override
    def stamp(self) -> Mark:
        return self._device.stamp()

    @override
    def seconds(self, begin: Mark, end: Mark) -> float | None:
        return self._device.seconds(begin, end)

    @override
    def register(self, memory: Tensor) -> Registered:
        self.registered += memory.numel()
        return self._device.register(memory)


def pinned_bytes_are_planned(machine: Machine, folder: Path) -> str:
    """Two workers page-lock no more than 1.05 of what is said before the start, torch's own cache included."""
    run, needs = SharedRun(2, Settings()), list[MemoryNeed]()

    def body(worker: int) -> tuple[int, int, MemoryNeed | None]:
        parameter = Parameter(torch.zeros(FLOATS[machine.device], device=machine.device))
        device = Counted(device_of([parameter]) if machine.device == "cuda" else LateDevice(worker))
        joined = join(run, run.member(worker, DEADLINE_S), [SGD([parameter], lr=1.0)], needs.append, device=device)
        joined.start()
        joined.begin()
        parameter.grad = torch.ones_like(parameter)
        joined.clients[0].push()
        cached = int(torch.cuda.host_memory_stats()["allocated_bytes.peak"]) if machine.device == "cuda" else 0
        joined.finish()
        return device.registered, cached, needs[0] if needs else None

    try:
        found = run_workers(2, body)
    finally:
        run.close()
    need = next(one for _, _, one in found if one is not None)
    pinned = sum(registered + cached for registered, cached, _ in found) - need.shared  # which both have
    planned = need.shared + need.gradients
    assert need.shared < pinned <= MORE * planned, f"{pinned / 1e6:.1f} MB page-locked, {planned / 1e6:.1f} planned"
    return f"{pinned / 1e6:.1f} MB page-locked, {planned / 1e6:.1f} planned"


CHECKS: Final = [
    Check("times: computing is computing", computing_is_booked_so, point=4),
    Check("times: steps of one process, by events", steps_of_one_process_are_timed_so, point=4),
    Check("out of memory: as cuBLAS says it", cublas_without_memory_is_typed, point=5, cuda="cuBLAS is CUDA's"),
    Check("pinned bytes are planned", pinned_bytes_are_planned, point=5),
]
