"""Point 11: several GPUs; on a CPU, several workers."""

import ctypes
import os
import signal
import time
from pathlib import Path
from typing import Any, Final

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from torch.utils.data import DataLoader

from scalebook.training.lightning import DDP, AsyncPS, ModelParallel
from tests.gpu.costs import typed
from tests.gpu.kills import Greedy, KillOnce, await_free, free_share
from tests.gpu.models import Dyadic, exact_weights, flat, make_trainer, numbers
from tests.gpu.running import Check, Machine, left_behind
from tests.training.lightning.async_ps.small import SAMPLES, data
from tests.training.lightning.model_parallel.split_model import momentum, pair

STILL_S: Final = 3.0


class Contexts(Callback):
    """Each worker notes on which GPUs it has a context, and which is its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if pl_module.device.type == "cuda":
            found = contexts(torch.cuda.device_count())
            text = f"{pl_module.device.index} {','.join(map(str, found))}"
            (self.folder / f"{trainer.global_rank}").write_text(text, encoding="utf-8")


def contexts(gpus: int) -> list[int]:
    """GPUs on which this process has a context of its own, as the driver says."""
    library, flags, active = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint(), ctypes.c_int()
    found = []
    for number in range(gpus):
        assert library.cuDevicePrimaryCtxGetState(number, ctypes.byref(flags), ctypes.byref(active)) == 0
        if active.value:
            found.append(number)
    return found


def one_context_each(machine: Machine, folder: Path) -> str:
    """Two workers, a GPU each: no worker has a context on another's."""
    model = Dyadic(machine.device)
    make_trainer(machine, folder, AsyncPS(), devices=2, callbacks=[Contexts(folder)]).fit(model, numbers())
    assert torch.equal(flat(model), exact_weights())
    found = [(folder / f"{worker}").read_text(encoding="utf-8") for worker in range(2)]
    assert found == ["0 0", "1 1"], f"own GPU, and contexts: {found}"
    return "a context each"


def workers_share_devices(machine: Machine, folder: Path) -> str:
    """Four workers over two devices."""
    return _exact(machine, folder, AsyncPS(workers=4), 2)


def eight_devices(machine: Machine, folder: Path) -> str:
    """A worker for each of eight, then DDP over them."""
    _exact(machine, folder, AsyncPS(), 8)
    model = Dyadic(machine.device)
    make_trainer(machine, folder, DDP(), devices=8).fit(model, numbers())
    assert torch.equal(flat(model), exact_weights(averaged=8))
    return "AsyncPS x 8, DDP x 8, to the last bit"


def _exact(machine: Machine, folder: Path, strategy: AsyncPS, devices: int) -> str:
    model = Dyadic(machine.device)
    make_trainer(machine, folder, strategy, devices=devices).fit(model, numbers())
    assert torch.equal(flat(model), exact_weights())
    times = strategy.figures.worker_times()
    return f"{len(times)} workers on {devices} devices, to the last bit"


def out_of_memory_in_one_rank(machine: Machine, folder: Path) -> str:
    """DDP: the second of two runs out of memory while the first waits for it; both end, typed, and memory is free."""
    free = free_share(machine)
    told = typed(Greedy(machine.device), machine, folder, DDP(), 2)
    assert left_behind() == []
    await_free(machine, free)
    return told


def stop_this(_trainer: Trainer) -> None:
    """Stop this process for a while: its collectives are late, and the others wait for them."""
    process = os.getpid()
    if os.fork() == 0:
        time.sleep(STILL_S)
        os.kill(process, signal.SIGCONT)
        os._exit(0)
    os.kill(process, signal.SIGSTOP)


def a_stopped_rank_goes_on(machine: Machine, folder: Path) -> str:
    """DDP: a process that stands still for some seconds (SIGSTOP) holds the others up, and nothing is lost."""
    model, note = Dyadic(machine.device), folder / "note"
    started = time.monotonic()
    trainer = make_trainer(machine, folder, DDP(), devices=2, callbacks=[KillOnce(1, 3, note, stop_this)])
    trainer.fit(model, numbers())
    assert note.exists(), "nobody was stopped"
    took = time.monotonic() - started
    assert took > STILL_S, f"it took {took:.1f} s: nobody waited"
    assert torch.equal(flat(model), exact_weights(averaged=2))
    return f"{took:.1f} s, to the last bit"


def one_model_over_two(machine: Machine, folder: Path) -> str:
    """ModelParallel by tensor, then by shard: the weights of one process after ten updates of all samples."""

    def after(strategy: Any, devices: int, samples: int) -> Tensor:
        model = pair(momentum)
        made = make_trainer(machine, folder, strategy, devices, 10, gradient_clip_val=0.1)
        made.fit(model, DataLoader(data(), samples), DataLoader(data(), samples))
        return flat(model)

    one = after("auto", 1, SAMPLES)
    apart = [float((after(ModelParallel(tensor), 2, SAMPLES * tensor // 2) - one).abs().max()) for tensor in (2, 1)]
    assert max(apart) < 1e-4, f"apart from one process by {apart}"
    return f"tensor x 2 and shard x 2 are {max(apart):.0e} apart from one process"


CHECKS: Final = [
    Check("two GPUs: ModelParallel", one_model_over_two, point=11, gpus=2),
    Check("two GPUs: no context on another's", one_context_each, point=11, gpus=2, cuda="contexts are CUDA's"),
    Check("two GPUs: AsyncPS 2 x 2", workers_share_devices, point=11, gpus=2),
    Check("two GPUs: DDP, one out of memory", out_of_memory_in_one_rank, point=11, gpus=2),
    Check("two GPUs: DDP, one stopped for a while", a_stopped_rank_goes_on, point=11, gpus=2),
    Check("eight GPUs: AsyncPS x 8, DDP x 8", eight_devices, 120.0, point=11, gpus=8),
]
