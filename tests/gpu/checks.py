"""The checks of a run that nothing happens to."""

import os
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import torch
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.precision import MixedPrecision
from torch.nn import Linear, Parameter, ReLU, Sequential
from torch.optim import SGD, Adam, AdamW, Optimizer

from scalebook.training.engine import Settings, SharedRun, join
from scalebook.training.engine.rules.local_steps import Downpour
from scalebook.training.engine.rules.update_rules import Bounded, Softsync, Sync
from scalebook.training.lightning import DDP, AsyncPS
from scalebook.training.lightning.processes.run_workers import run_workers
from tests.gpu.models import Dyadic, Pictures, exact_weights, flat, make_trainer, numbers, pictures
from tests.gpu.running import Check, Machine

STEPS: Final = 10
SCALE: Final = 2.0**10
DEADLINE_S: Final = 60.0
OPTIMIZERS: Final[dict[str, Callable[[list[Parameter]], Optimizer]]] = {
    "SGD": lambda p: SGD(p, lr=0.1),
    "momentum": lambda p: SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-3),
    "Adam": lambda p: Adam(p, lr=1e-2),
    "AdamW fused": lambda p: AdamW(p, lr=1e-2, fused=True),
}


# --- exactness -------------------------------------------------------------------------------------------------------


def sums_are_exact(machine: Machine, folder: Path) -> str:
    """Whatever rule, workers, host: no gradient is lost, none applied twice, none torn on its way to or from a GPU."""
    cases: dict[str, tuple[AsyncPS, int]] = {
        "async x 1": (AsyncPS(workers=1), 1),
        "async x 4": (AsyncPS(workers=4), 1),
        "async x 2, 3 shards": (AsyncPS(workers=2, shards=3), 1),
        "async x 1, every second push and pull": (AsyncPS(local=Downpour(2, 2), workers=1), 1),
        "async x 2, every second pull": (AsyncPS(local=Downpour(1, 2), workers=2), 1),
        "bounded x 2": (AsyncPS(Bounded(bound=1), workers=2), 1),
        "sync x 2": (AsyncPS(Sync(), workers=2), 2),
        "softsync x 2": (AsyncPS(Softsync(average=2), workers=2), 2),
        "async x 2, servers": (AsyncPS(workers=2, host="process", shards=2), 1),
        "async x 2, servers, overlap": (AsyncPS(workers=2, host="overlap"), 1),
    }
    for case, (strategy, averaged) in cases.items():
        model = Dyadic(machine.device)
        make_trainer(machine, folder, strategy).fit(model, numbers())
        assert torch.equal(flat(model), exact_weights(averaged=averaged)), case
    return f"{len(cases)} ways, to the last bit"


def steps_equal_one_process(machine: Machine, folder: Path) -> str:
    """One worker's parameters after each push equal those of a loop that takes its gradients to the CPU, steps there,
    and takes the parameters back."""
    for name, make in OPTIMIZERS.items():
        run_workers(1, partial(_same_steps, machine, name, make))
    return f"{len(OPTIMIZERS)} optimizers, {STEPS} steps each, to the last bit"


def _same_steps(machine: Machine, name: str, make: Callable[[list[Parameter]], Optimizer], _worker: int) -> None:
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # else cuBLAS may add in another order
    torch.use_deterministic_algorithms(True)
    model, reference = (_perceptron().to(machine.device) for _ in range(2))
    masters = [Parameter(p.detach().cpu().clone()) for p in reference.parameters()]
    optimizer = make(masters)
    run = SharedRun(1, Settings())
    joined = join(run, run.member(0, DEADLINE_S), [make(list(model.parameters()))])
    (client,) = joined.clients
    joined.start()
    joined.begin()
    for step in range(STEPS):
        for one in (model, reference):
            one.zero_grad()
            inputs = torch.randn(64, 20, generator=torch.Generator().manual_seed(step)).to(machine.device)
            torch.autograd.backward(one(inputs).square().mean())
        client.push()
        for master, parameter in zip(masters, reference.parameters(), strict=True):
            assert parameter.grad is not None
            master.grad = parameter.grad.cpu()
        optimizer.step()
        with torch.no_grad():
            for master, parameter in zip(masters, reference.parameters(), strict=True):
                parameter.copy_(master)
        pairs = zip(model.parameters(), reference.parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs), f"{name}: step {step}"
        assert {p.device.type for p in model.parameters()} == {machine.device}
    joined.finish()
    joined.detach()
    run.close()


def _perceptron() -> Sequential:
    torch.manual_seed(0)
    return Sequential(Linear(20, 64), ReLU(), Linear(64, 5))


def retraces_a_plain_trainer(machine: Machine, folder: Path) -> str:
    """The same pictures through one worker and through a Trainer without us: as close as CPU and GPU step."""
    ours, plain = _pictures_model(), _pictures_model()
    make_trainer(machine, folder, AsyncPS(workers=1), epochs=1).fit(ours, pictures())
    make_trainer(machine, folder, epochs=1).fit(plain, pictures())
    apart = float((flat(ours) - flat(plain)).abs().max())
    assert apart < 2e-2, f"after 16 steps of Adam parameters are {apart} apart"
    if machine.device == "cpu":
        assert apart == 0
    return f"16 steps of Adam, {apart:.1e} apart"


def _pictures_model(bad_batch: int | None = None) -> Pictures:
    torch.manual_seed(5)
    return Pictures(bad_batch)


# --- memory, sharing -------------------------------------------------------------------------------------------------


def memory_is_pinned(machine: Machine, folder: Path) -> str:
    """The run's memory and where gradients land are page-locked in each of two workers."""
    run = SharedRun(2, Settings())

    def body(worker: int) -> list[bool]:
        torch.cuda.set_device(0)
        model = _perceptron().cuda()
        joined = join(run, run.member(worker, DEADLINE_S), [SGD(model.parameters(), lr=0.1)])
        (client,) = joined.clients
        joined.start()
        joined.begin()
        torch.autograd.backward(model(torch.ones(2, 20, device="cuda")).sum())
        gradients = [g for g in client.host.transfer.copy_to_host(client.replica.gradients()) if g is not None]
        found = [*(flat.is_pinned() for shard in client.host.partition.shards for flat in shard.flats)]
        found += [gradient.is_pinned() for gradient in gradients]
        joined.finish()
        return found

    found = run_workers(2, body)
    run.close()
    assert all(found[0] + found[1]), found
    return f"{len(found[0])} parts in each of 2 workers"


def workers_share_a_device(machine: Machine, folder: Path) -> str:
    """Four workers on one device learn the pictures, with the mean of their batch normalisation statistics."""
    strategy, model = AsyncPS(workers=4), _pictures_model()
    trainer = make_trainer(machine, folder, strategy, epochs=4)
    trainer.fit(model, pictures(), pictures())
    loss, applied = float(trainer.callback_metrics["val/loss"]), strategy.figures.worker_times()
    assert loss < 0.5, f"the validation loss is {loss}, by guessing 1.39"
    assert sum(one.updates for one in applied) == 4 * 16
    assert all(one.updates > 0 for one in applied), "a worker has done nothing"
    return f"64 updates, {[one.updates for one in applied]} by worker; validation loss {loss:.3f}"


class Scales(Callback):
    """Fails unless the loss scaler has halved its scale at the bad batch."""

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        plugin = trainer.precision_plugin
        assert isinstance(plugin, MixedPrecision)
        assert plugin.scaler is not None
        assert plugin.scaler.get_scale() == SCALE / 2, f"its scale is {plugin.scaler.get_scale()}"


def half_precision_scales(machine: Machine, folder: Path) -> str:
    """float16 with a loss scaler: a batch with an infinite loss makes no update, in each of two workers."""
    scaler = torch.amp.GradScaler(machine.device, init_scale=SCALE)
    plugin = MixedPrecision("16-mixed", machine.device, scaler=scaler)
    strategy, model = AsyncPS(workers=2), _pictures_model(bad_batch=1)
    trainer = make_trainer(machine, folder, strategy, callbacks=[Scales()], plugins=[plugin])
    trainer.fit(model, pictures(), pictures())
    assert bool(flat(model).isfinite().all())
    assert strategy.figures.counts().updates == 16 - 2, f"{strategy.figures.counts().updates} updates"
    return f"14 updates of 16 batches; validation loss {float(trainer.callback_metrics['val/loss']):.3f}"


def bfloat16_learns(machine: Machine, folder: Path) -> str:
    """bf16-mixed, two workers."""
    model = _pictures_model()
    trainer = make_trainer(machine, folder, AsyncPS(workers=2), epochs=4, precision="bf16-mixed")
    trainer.fit(model, pictures(), pictures())
    loss = float(trainer.callback_metrics["val/loss"])
    assert loss < 0.5, f"the validation loss is {loss}, by guessing 1.39"
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    return f"validation loss {loss:.3f}"


# --- checkpoints, DDP ------------------------------------------------------------------------------------------------


def checkpoints_go_everywhere(machine: Machine, folder: Path) -> str:
    """AsyncPS here, a plain Trainer here, a plain Trainer on the CPU, AsyncPS here: each goes on from the last."""
    cpu = Machine("cpu", 0, "")
    ways: list[tuple[Machine, AsyncPS | str]] = [
        (machine, AsyncPS(workers=2)), (machine, AsyncPS(workers=3)), (cpu, "auto"), (cpu, AsyncPS(workers=2)),
        (machine, AsyncPS(workers=2)), (machine, "auto"),
    ]  # fmt: skip
    paths: list[Path | None] = [None, *(folder / f"{epoch}.ckpt" for epoch in range(1, len(ways) + 1))]
    for epoch, ((where, strategy), (before, after)) in enumerate(zip(ways, pairwise(paths), strict=True), start=1):
        assert after is not None
        # In a process of its own: where a plain Trainer has trained, on a machine with a GPU, no worker can be forked.
        run_workers(1, partial(_go_on, where, strategy, epoch, before, after))
    return f"{len(ways)} runs, to the last bit"


def _go_on(
    machine: Machine, strategy: AsyncPS | str, epochs: int, before: Path | None, after: Path, _worker: int
) -> None:
    """Train from a checkpoint until so many epochs are done, and leave another."""
    keeping = ModelCheckpoint(dirpath=after.parent, filename=after.stem)
    model = Dyadic(machine.device)
    trainer = make_trainer(
        machine, after.parent, strategy, epochs=epochs, callbacks=[keeping], enable_checkpointing=True
    )
    trainer.fit(model, numbers(), ckpt_path=None if before is None else str(before))
    assert torch.equal(flat(model), exact_weights(epochs=epochs)), f"after epoch {epochs}"
    found = torch.load(after, map_location="cpu", weights_only=True)["state_dict"]
    assert torch.equal(torch.cat([value.flatten() for value in found.values()]), flat(model))


def ddp(machine: Machine, folder: Path) -> str:
    """DDP of one worker: NCCL on a GPU."""
    return _ddp(machine, folder, 1)


def ddp_two_devices(machine: Machine, folder: Path) -> str:
    """DDP of two workers, a device each."""
    return _ddp(machine, folder, 2)


def _ddp(machine: Machine, folder: Path, workers: int) -> str:
    backend = "nccl" if machine.device == "cuda" else "gloo"
    model = Dyadic(machine.device, backend)
    make_trainer(machine, folder, DDP(), devices=workers).fit(model, numbers())
    assert torch.equal(flat(model), exact_weights(averaged=workers))
    return f"{backend} x {workers}, to the last bit"


def used_cuda_is_told(machine: Machine, folder: Path) -> str:
    """A process that has used CUDA cannot fork workers: an error that says so, not a hang."""
    torch.zeros(1, device="cuda")
    told = ""
    try:
        make_trainer(machine, folder, AsyncPS(workers=2)).fit(Dyadic("cuda"), numbers())
    except RuntimeError as error:
        told = str(error).splitlines()[0]
    assert "CUDA" in told, f"it was not refused: {told}"
    return told


CHECKS: Final = [
    Check("AsyncPS: sums are exact", sums_are_exact, 150.0),
    Check("AsyncPS: steps equal one process", steps_equal_one_process),
    Check("AsyncPS: retraces a plain Trainer", retraces_a_plain_trainer),
    Check("AsyncPS: memory is pinned", memory_is_pinned, cuda="page-locked memory is CUDA's"),
    Check("AsyncPS: four workers share a device", workers_share_a_device),
    Check("AsyncPS: float16 with loss scaling", half_precision_scales),
    Check("AsyncPS: bfloat16", bfloat16_learns),
    Check("checkpoints go everywhere", checkpoints_go_everywhere),
    Check("DDP: one device", ddp),
    Check("DDP: two devices", ddp_two_devices, gpus=2),
    Check("CUDA used before the fork is told", used_cuda_is_told, cuda="only CUDA does not survive a fork"),
]
