"""Points 2 and 3: what a process leaves alone before it forks, and what a forked one finds."""

import ctypes
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import torch
from lightning.pytorch.callbacks import LearningRateFinder

from scalebook.training.lightning import DDP, AsyncPS
from scalebook.training.lightning.processes import cuda_fork as driver
from scalebook.training.lightning.processes.run_workers import run_workers
from scalebook.training.lightning.processes.threads import check_fork
from tests.gpu.models import Dyadic, Pictures, exact_weights, flat, make_trainer, numbers, pictures
from tests.gpu.running import Check, Machine

NVML: Final = "libnvidia-ml.so.1"


class Forks:
    """What is true of this process at each of its own forks; those of its children do not count."""

    def __init__(self) -> None:
        self._pid, self.begun = os.getpid(), list[bool]()
        os.register_at_fork(before=self._note)

    def _note(self) -> None:
        if os.getpid() == self._pid:
            self.begun.append(driver.cuda_has_begun())


def parent_is_clean(machine: Machine, folder: Path) -> str:
    """Nothing that ends in a fork has begun CUDA before: `cuDeviceGetCount` answers 3, or no driver is loaded."""
    ways: dict[str, Callable[[Machine, Path], None]] = {
        "fit": _fit, "DDP": _fit_ddp, "finder": _find, "fit, with dynamo and Triton imported": _fit_compilers,
    }  # fmt: skip
    forks, counts = Forks(), list[int]()
    for name, what in ways.items():
        before = len(forks.begun)
        what(machine, folder)
        counts.append(len(forks.begun) - before)
        assert counts[-1] > 0, f"{name}: nothing was forked"
        assert not any(forks.begun[before:]), f"{name}: CUDA had begun before the fork"
    return f"{sum(counts)} forks in {len(counts)} ways"


def raw_init_is_refused(machine: Machine, folder: Path) -> str:
    """A library that calls `cuInit` by itself leaves torch's own flag unset; the refusal is ours all the same."""
    assert ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
    assert not torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return refusal(torch.device("cuda"))


def refusal(device: torch.device) -> str:
    """What `check_fork` says, which must name CUDA and the remedy."""
    told = ""
    try:
        check_fork(device)
    except RuntimeError as error:
        told = str(error).splitlines()[0]
    assert "CUDA has been used in this process" in told, f"it was not refused in our words: {told}"
    return told


def _fit(machine: Machine, folder: Path) -> None:
    model = Dyadic(machine.device)
    make_trainer(machine, folder, AsyncPS(workers=2)).fit(model, numbers())
    assert torch.equal(flat(model), exact_weights())


def _find(machine: Machine, folder: Path) -> None:
    finder, model = LearningRateFinder(num_training_steps=8), Pictures()
    make_trainer(machine, folder, AsyncPS(workers=2), callbacks=[finder]).fit(model, pictures())
    assert finder.optimal_lr is not None


def _fit_ddp(machine: Machine, folder: Path) -> None:
    make_trainer(machine, folder, DDP()).fit(Dyadic(machine.device), numbers())


def _fit_compilers(machine: Machine, folder: Path) -> None:
    importlib.import_module("torch._dynamo")
    if importlib.util.find_spec("triton"):  # it comes with torch for GPUs
        importlib.import_module("triton")
    _fit(machine, folder)


# --- a fork server --------------------------------------------------------------------------------------------------


def warm_fork_finds_its_gpu(machine: Machine, folder: Path) -> str:
    """As a job begins: a process that has imported all forks, closes what it has inherited, is told one GPU; that is
    the one it counts, and it trains there."""
    return _warm(machine, folder, _uuid(machine))


def warm_fork_with_nvml(machine: Machine, folder: Path) -> str:
    """The same where the parent has opened NVML, as the supervisor has."""
    assert ctypes.CDLL(NVML).nvmlInit_v2() == 0
    return _warm(machine, folder, _uuid(machine))


def _uuid(machine: Machine) -> str:
    """Of the last GPU; nothing on a CPU."""
    if machine.device == "cpu":
        return ""
    uuid = run_workers(1, lambda _: str(torch.cuda.get_device_properties(machine.gpus - 1).uuid))[0]
    return f"GPU-{uuid.removeprefix('GPU-')}"


def _warm(machine: Machine, folder: Path, uuid: str) -> str:
    answer = folder / "answer.txt"
    child = os.fork()
    if child == 0:
        try:
            _begin(machine, folder, uuid, answer)
        except BaseException as error:  # noqa: BLE001  # whatever it is, the parent is told
            answer.write_text(f"{type(error).__name__}: {error}", encoding="utf-8")
        os._exit(0)
    os.waitpid(child, 0)
    told = answer.read_text(encoding="utf-8") if answer.exists() else "it died"
    expected = f"{min(machine.gpus, 1)} GPUs, trained to the last bit"
    assert told == expected, told
    return told


def _begin(machine: Machine, folder: Path, uuid: str, answer: Path) -> None:
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.environ["CUDA_VISIBLE_DEVICES"] = uuid
    driver.prepare_for_forks()  # as each strategy does: torch cannot use the NVML of the parent, which is closed
    count, model = torch.cuda.device_count(), Dyadic(machine.device)
    make_trainer(machine, folder, AsyncPS(workers=1)).fit(model, numbers())
    exact = "trained to the last bit" if torch.equal(flat(model), exact_weights()) else "its sums are wrong"
    answer.write_text(f"{count} GPUs, {exact}", encoding="utf-8")


CHECKS: Final = [
    Check("parent clean: before each fork", parent_is_clean, point=2),
    Check("parent clean: a raw cuInit is refused", raw_init_is_refused, point=2, cuda="cuInit is CUDA's"),
    Check("warm start", warm_fork_finds_its_gpu, point=3),
    Check("warm start: with NVML open", warm_fork_with_nvml, point=3, cuda="NVML is of NVIDIA's driver"),
]
