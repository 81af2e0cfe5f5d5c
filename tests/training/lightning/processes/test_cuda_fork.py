"""CUDA before the fork: who has begun it is refused, and neither a Trainer nor what surrounds it begins it."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import LearningRateFinder

from scalebook.training.base.workspace import Workspace
from scalebook.training.cli.describe import describe
from scalebook.training.cli.lightning_cli import TrainingCLI
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.lightning import DDP, AsyncPS
from scalebook.training.lightning.processes import cuda_fork, strategy_launcher
from scalebook.training.lightning.processes.threads import check_fork
from tests.training.lightning.async_ps.small import Small, held_out, loader, trainer
from tests.training.runs import config

BEGINNING = ("_cuda_init", "_cuda_getDeviceCount", "_cuda_setDevice", "_cuda_getDevice", "_cuda_synchronize")
"""Functions of torch's through which it calls CUDA's `cuInit`, or what needs it."""
GPU = torch.device("cuda")


class ForkError(Exception):
    """Instead of a fork."""


class Driver:
    """CUDA's driver library as far as it is asked: `answer` is what `cuDeviceGetCount` returns."""

    def __init__(self, answer: int) -> None:
        self._answer = answer

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = 1
        return self._answer


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A machine with one GPU, which NVML sees; what begins CUDA in this process is noted here and fails."""
    calls: list[str] = []

    def noted(name: str) -> Callable[..., int]:
        def call(*_: Any) -> int:
            calls.append(name)
            raise AssertionError(f"{name} was called")

        return call

    for name in BEGINNING:
        monkeypatch.setattr(torch._C, name, noted(name), raising=False)
    monkeypatch.setattr(torch.cuda, "_lazy_init", noted("_lazy_init"))
    parent = os.getpid()
    monkeypatch.setattr(torch.cuda, "_is_compiled", lambda: os.getpid() == parent)  # workers of these tests have no GPU
    monkeypatch.setattr(cuda_fork, "_has_gpu", lambda: True)
    monkeypatch.setattr(torch.cuda, "_device_count_nvml", lambda: 1)
    monkeypatch.setattr(torch.cuda, "_cached_device_count", None)
    return calls


@pytest.fixture
def no_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    def fork(*_: Any, **__: Any) -> None:
        raise ForkError

    monkeypatch.setattr(strategy_launcher, "run_workers", fork)


@pytest.mark.parametrize(("answer", "refused"), [(3, False), (0, True), (999, True)])
def test_who_has_begun_cuda_in_any_way_is_refused(answer: int, refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Triton does by `cuInit` of its own, and torch by `cudaGetDeviceCount` where NVML fails: to torch it is not
    initialised."""
    assert not torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    monkeypatch.setattr(cuda_fork, "_loaded_driver", lambda: Driver(answer))
    check_fork(torch.device("cpu"))
    if not refused:
        check_fork(GPU)
        return
    with pytest.raises(RuntimeError, match=r"CUDA has been used in this process, .* Start this run in a fresh process"):
        check_fork(GPU)


def test_the_driver_is_asked_only_where_something_has_loaded_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_fork, "_DRIVER", "libm.so.6")
    ctypes.CDLL("libm.so.6")
    assert cuda_fork._loaded_driver() is not None
    monkeypatch.setattr(cuda_fork, "_DRIVER", "libBrokenLocale.so.1")  # of every glibc, and used by nobody
    assert cuda_fork._loaded_driver() is None
    assert not cuda_fork.cuda_has_begun()
    assert "libBrokenLocale" not in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize("make", [lambda: AsyncPS(workers=2), DDP])
def test_up_to_the_fork_a_trainer_on_a_gpu_does_not_begin_cuda(
    make: Callable[[], Any], begun: list[str], no_fork: None
) -> None:
    made = Trainer(strategy=make(), accelerator="gpu", devices=1, max_epochs=1, logger=False, precision="16-mixed")
    assert made.strategy.root_device == torch.device("cuda", 0)
    with pytest.raises(ForkError):
        made.fit(Small(), loader())
    assert begun == []


@pytest.mark.parametrize("make", [lambda: AsyncPS(workers=2), DDP])
def test_where_nvml_fails_gpus_are_counted_by_another_process(
    make: Callable[[], Any], begun: list[str], no_fork: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a part of a GPU (MIG), of which torch's count by NVML is -1."""
    monkeypatch.setattr(torch.cuda, "_device_count_nvml", lambda: -1)
    monkeypatch.setattr(cuda_fork, "_COUNT", f"import os; print(1 if os.getppid() == {os.getpid()} else 0)")
    made = Trainer(strategy=make(), accelerator="gpu", devices=1, max_epochs=1, logger=False)
    with pytest.raises(ForkError):
        made.fit(Small(), loader())
    assert begun == []


def test_the_refusal_names_the_way_out_where_counting_has_begun_cuda(
    begun: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Trainer that is given a name counts before its strategy is made."""
    monkeypatch.setattr(cuda_fork, "_loaded_driver", lambda: Driver(0))
    with pytest.raises(RuntimeError, match="fresh process") as elsewhere:
        check_fork(GPU)
    assert "strategy=DDP()" not in str(elsewhere.value)
    monkeypatch.setattr(torch.cuda, "_device_count_nvml", lambda: -1)
    with pytest.raises(RuntimeError, match=r"Use strategy=DDP\(\) instead of strategy=\"ddp\""):
        check_fork(GPU)
    assert begun == []


@pytest.mark.filterwarnings("ignore:GPU available but not used")
def test_a_config_that_calls_its_strategy_by_name_does_not_begin_cuda(
    begun: list[str], description: Description, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "_device_count_nvml", lambda: -1)
    monkeypatch.setattr(cuda_fork, "_COUNT", "print(1)")
    TrainingCLI("fit", Experiment(config("ddp", max_steps=1), description).to_run(), None)
    assert begun == []


def test_without_an_answer_torch_counts_by_itself(begun: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "_device_count_nvml", lambda: -1)
    monkeypatch.setattr(cuda_fork, "_COUNT", "raise SystemExit(1)")
    cuda_fork._count_gpus_apart()
    assert torch.cuda._cached_device_count is None
    with pytest.raises(AssertionError, match="_cuda_getDeviceCount was called"):
        torch.cuda.device_count()


@pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="there is a GPU")
def test_without_a_driver_nothing_is_counted() -> None:
    assert cuda_fork._counted() == 0


@pytest.mark.filterwarnings("ignore:GPU available but not used")
def test_describing_and_searching_do_not_begin_cuda(begun: list[str], tmp_path: Path, workspace: Workspace) -> None:
    """A search and a whole fit, on the CPU of a machine with a GPU."""
    assert describe(workspace).strategies
    finder = LearningRateFinder(num_training_steps=5, update_attr=False)
    made = trainer(tmp_path, AsyncPS(workers=2), max_epochs=1, callbacks=[finder])
    model = Small()
    model.lr = 0.1  # type: ignore[assignment]
    made.fit(model, loader(), held_out())
    assert finder.optimal_lr is not None
    assert begun == []


def test_on_a_cpu_a_fork_of_a_process_that_has_counted_gpus_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build of torch for GPUs begins CUDA to count them where the driver is missing; a CPU needs none."""
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    made = trainer(tmp_path, AsyncPS(workers=1), max_epochs=1)
    made.fit(Small(), loader(), held_out())
    assert made.global_step > 0


FAKE_TENSORS_BEFORE_A_FORK = """
import os, sys, torch
from torch._subclasses.fake_tensor import FakeTensorMode
from scalebook.training.lightning.processes.cuda_fork import prepare_for_forks
from scalebook.training.lightning.processes.threads import check_fork

def backward():
    torch.ones(1, requires_grad=True).sum().backward()

if sys.argv[1] == "prepared":
    prepare_for_forks()
with FakeTensorMode():
    torch.ones(1)
backward()
try:
    check_fork(torch.device("cpu"))
except RuntimeError as error:
    sys.exit(str(error))
child = os.fork()
if not child:
    backward()
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not torch.cuda._is_compiled() or cuda_fork._has_gpu(), reason="of a CUDA build without a GPU")
@pytest.mark.parametrize("prepared", [True, False])
def test_a_compiled_model_trains_in_forks_of_a_cuda_build(prepared: bool) -> None:
    """torch.compile uses FakeTensorMode; a backward pass after that once started autograd's threads for devices."""
    command = [sys.executable, "-W", "ignore", "-c", FAKE_TENSORS_BEFORE_A_FORK, "prepared" if prepared else "not"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode == 0) is prepared
    assert ("has started torch's autograd threads" in ended.stderr) is not prepared


@pytest.mark.parametrize(("compiled", "gpu", "passes"), [(True, False, 1), (True, True, 0), (False, False, 0)])
def test_the_first_backward_pass_comes_before_any_of_the_users(
    compiled: bool, gpu: bool, passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only in a CUDA build without a GPU: with one, the pass itself would start the threads."""
    made = []
    monkeypatch.setattr(torch.cuda, "_is_compiled", lambda: compiled)
    monkeypatch.setattr(cuda_fork, "_has_gpu", lambda: gpu)
    monkeypatch.setattr(torch.cuda, "_cached_device_count", 1)
    monkeypatch.setattr(torch.Tensor, "backward", lambda tensor: made.append(tensor.item()))
    cuda_fork.prepare_for_forks()
    assert made == [1.0] * passes
