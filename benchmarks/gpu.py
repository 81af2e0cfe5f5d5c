"""What the parameter server costs and gains on one GPU: `python -m benchmarks.gpu [--device cpu] [--json FILE]`.

ResNet-50 on random images. Updates a second of 1, 2 and 4 workers that share the GPU against one process that steps on
it; what a push and a pull take, against copies of as many bytes. Needs torch and Lightning alone.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.functional import cross_entropy
from torch.optim import SGD

from benchmarks.gpu_model import resnet50
from scalebook.training.ps import Joined, Settings, SharedRun, join
from scalebook.training.strategies.processes import run_workers

WORKERS: Final = (1, 2, 4)
DEADLINE_S: Final = 120.0
WARM_UP: Final = 3  # steps
REPEATS: Final = 5  # of each copy, the best counts
PARTS: Final = len(WORKERS) + 2  # that the time is divided by: a system each, the copies
START_S: Final = 15.0  # of a part, at most: processes, CUDA, memory, the warm-up
SIZES: Final = {"cuda": (32, 128), "cpu": (2, 32)}  # images of a batch; pixels of a side


def measured(device: str, limit_s: float) -> dict[str, Any]:
    """All figures, in less than `limit_s` seconds; this process does not touch the GPU."""
    seconds = min(10.0, max(1.0, limit_s / PARTS - START_S))
    alone = run_workers(1, lambda _: _one_process(device, seconds))[0]
    rates = {"one process": alone} | {f"AsyncPS x {n}": _together(device, n, seconds) for n in WORKERS}
    batch, side = SIZES[device]
    return {
        "model": {"parameters": sum(p.numel() for p in resnet50().parameters()), "batch": batch, "side": side},
        "updates_per_s": rates,
        "copies": run_workers(1, lambda _: _copies(device))[0],
    }


def table(figures: dict[str, Any]) -> str:
    """Markdown."""
    model, rates, copies = figures["model"], figures["updates_per_s"], figures["copies"]
    lines = [
        f"ResNet-50, {model['parameters'] / 1e6:.1f} M parameters, batches of {model['batch']} x {model['side']}²\n",
        "| system | updates/s | of one process |", "|---|---:|---:|",
    ]  # fmt: skip
    lines += [f"| {name} | {rate:.2f} | {rate / rates['one process']:.2f} |" for name, rate in rates.items()]
    lines += ["", "| what | ms | GB/s |", "|---|---:|---:|"]
    lines += [f"| {name} | {1000 * s:.1f} | {copies['bytes'] / s / 1e9:.1f} |" for name, s in copies["seconds"].items()]
    return "\n".join(lines)


def _task(device: str) -> tuple[Module, Callable[[], None]]:
    """A model, and what puts gradients into it."""
    if device == "cuda":
        torch.cuda.set_device(0)
    torch.manual_seed(0)
    batch, side = SIZES[device]
    model, images = resnet50().to(device), torch.rand(batch, 3, side, side, device=device)
    labels = torch.randint(1000, (batch,), device=device)

    def backward() -> None:
        for parameter in model.parameters():
            parameter.grad = None
        torch.autograd.backward(cross_entropy(model(images), labels))

    return model, backward


def _rate(device: str, step: Callable[[], object], seconds: float) -> tuple[int, float]:
    """Steps after the warm-up, and how long they took."""
    for _ in range(WARM_UP):
        step()
    _synchronise(device)
    steps, started = 0, time.perf_counter()
    while time.perf_counter() < started + seconds:
        step()
        steps += 1
    _synchronise(device)
    return steps, time.perf_counter() - started


def _one_process(device: str, seconds: float) -> float:
    model, backward = _task(device)
    optimizer = SGD(model.parameters(), lr=0.01)

    def step() -> None:
        backward()
        optimizer.step()

    steps, took = _rate(device, step, seconds)
    return steps / took


def _together(device: str, workers: int, seconds: float) -> float:
    """Updates a second of all workers; each measures from its own warm-up on, and all begin together."""
    run = SharedRun(workers, Settings())

    def body(worker: int) -> tuple[int, float]:
        model, backward = _task(device)
        joined = _joined(run, worker, model)

        def step() -> None:
            backward()
            joined.clients[0].push()

        rate = _rate(device, step, seconds)
        joined.finish()
        return rate

    try:
        shares: list[tuple[int, float]] = run_workers(workers, body)
    finally:
        run.close()
    return sum(steps / took for steps, took in shares)


def _joined(run: SharedRun, worker: int, model: Module) -> Joined:
    joined = join(run, run.member(worker, DEADLINE_S), [SGD(model.parameters(), lr=0.01)])
    joined.start()
    joined.begin()
    return joined


def _copies(device: str) -> dict[str, Any]:
    """Seconds of a push and its parts, and of plain copies of as many bytes."""
    run = SharedRun(1, Settings())
    model, backward = _task(device)
    joined = _joined(run, 0, model)
    (client,) = joined.clients
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    there = torch.empty(size, dtype=torch.uint8, device=device)
    here, beside = (torch.zeros(size, dtype=torch.uint8) for _ in range(2))
    seconds = {
        "push and pull, the update included": _best(device, client.push, backward),
        "gradients to the host": _best(device, lambda: client.host.bring(client.replica.gradients()), backward),
        "pull": _best(device, client.pull),
        "a copy to the host": _best(device, lambda: here.copy_(there)),
        "a copy from the host": _best(device, lambda: there.copy_(here)),
        "a copy within the host": _best(device, lambda: here.copy_(beside)),
    }
    if device == "cuda":
        pinned: Tensor = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        seconds["a copy to the host, page-locked"] = _best(device, lambda: pinned.copy_(there))
        seconds["a copy from the host, page-locked"] = _best(device, lambda: there.copy_(pinned))
    joined.finish()
    run.close()
    return {"bytes": size, "seconds": seconds}


def _best(device: str, what: Callable[[], object], before: Callable[[], object] = lambda: None) -> float:
    """Seconds of the fastest of some; `before` each of them, and not counted."""
    took = []
    for _ in range(REPEATS):
        before()
        _synchronise(device)
        started = time.perf_counter()
        what()
        _synchronise(device)
        took.append(time.perf_counter() - started)
    return min(took)


def _synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--limit-s", type=float, default=150.0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    figures = measured(given.device, given.limit_s)
    print(table(figures))
    if given.json is not None:
        given.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
