"""What the parameter server costs and gains on GPUs: `python -m benchmarks.gpu [--device cpu] [--json FILE]`.

Measures pushes (with update and pull) against plain copies of as many bytes, down and up; and ResNet-50 on random
images: 1, 2 and 4 workers that share one GPU against one process, and DDP. Needs only torch and Lightning. `python -m
tests.gpu` measures this too. Two minutes at most (`--limit-s`): read pushes "of copies alone" (goal: 60 %), and updates
of workers that share a GPU over those of one process.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, distributed, nn
from torch.nn import Module, Parameter
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

from scalebook.training.engine import Settings, SharedRun, join, serve
from scalebook.training.engine.rules.settings import HostName
from scalebook.training.lightning.processes.run_workers import run_workers

SHARING: Final = (1, 2, 4)
"""Workers that train ResNet-50 on one GPU."""
SIZES_MB: Final = {"cuda": (100, 1000), "cpu": (1, 4)}
WAYS: Final[tuple[tuple[int, HostName], ...]] = ((1, "inline"), (8, "inline"), (8, "process"))
"""Shards, and who applies them: the worker, one while the next arrives; or a server process for each."""
WORKERS: Final = (1, 8, 2, 4)
"""In this order: the most important come first, in case time runs out; ResNet-50 comes after the first."""
TENSORS: Final = 8  # of a model that is pushed, so that 8 shards have one each
IMAGES: Final = {"cuda": (32, 128), "cpu": (2, 32)}  # of a batch; pixels of a side
STEPS: Final = {"cuda": 60, "cpu": 3}  # of one process, and of DDP
DEADLINE_S: Final = 60.0
WARM_UP: Final = 3  # steps
REPEATS: Final = 5  # of a copy, the best counts
START_S: Final = {"cuda": 12.0, "cpu": 1.5}  # of a part, at most: processes, CUDA, page-locking, the warm-up
LONGEST_S: Final = 8.0
HELD: Final = 4
"""Device memory of a worker, in multiples of the parameters: themselves, gradients, and what is copied from and to."""
STAGES: Final = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))  # width, blocks, stride of the first
WIDER: Final = 4
Task = Callable[[str], tuple[Module, Callable[[], None]]]
"""Given a device: a model, and a function that computes gradients into it."""


class Case(NamedTuple):
    """Pushes of so many workers on one device."""

    mb: int
    shards: int
    host: HostName
    workers: int


def cases(device: str) -> list[Case]:
    """The most informative first."""
    return [Case(mb, *way, workers) for workers, mb, way in product(WORKERS, SIZES_MB[device], WAYS)]


def measured(device: str, gpus: int, limit_s: float, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """All figures; after `limit_s` the names of those that are missing. This process does not touch the GPU.

    `keep` gets the figures so far, again and again.
    """
    until = time.monotonic() + limit_s
    model = {"parameters": sum(p.numel() for p in resnet50().parameters()), "images": IMAGES[device]}
    figures: dict[str, Any] = {"model": model, "copies": {}, "pushes": [], "updates_per_s": {}}
    for mb in SIZES_MB[device]:
        figures["copies"][str(mb)] = run_workers(1, partial(_copy, device, mb), threads=1)[0]

    def push(case: Case, seconds: float) -> None:
        why = _too_large(device, case) if seconds else "no time was left"
        row: dict[str, Any] = case._asdict()
        if not why:
            rate = _pushes(device, case, seconds)
            row |= {"per_s": rate, "of_copies": rate * figures["copies"][str(case.mb)]}
        figures["pushes"].append(row | ({"skipped": why} if why else {}))

    def train(name: str, system: Callable[[float], float], seconds: float) -> None:
        figures["updates_per_s"][name] = system(seconds) if seconds else None

    pushes = [partial(push, case) for case in cases(device)]
    alone = len(pushes) // len(WORKERS)  # those of one worker
    systems = [partial(train, name, system) for name, system in _systems(device, gpus).items()]
    parts: list[Callable[[float], None]] = [*pushes[:alone], *systems, *pushes[alone:]]
    for number, part in enumerate(parts):
        left = until - time.monotonic() - START_S[device]
        part(0.0 if left < 0 else min(LONGEST_S, max(0.2, left / (len(parts) - number))))
        keep(figures)
    return figures


# --- pushes ----------------------------------------------------------------------------------------------------------


def _copy(device: str, mb: int, _worker: int) -> float:
    """Seconds of one copy to the host and one from it, page-locked."""
    size = mb * 10**6
    there = torch.empty(size, dtype=torch.uint8, device=device)
    here = torch.zeros(size, dtype=torch.uint8, pin_memory=device == "cuda")
    took = []
    for _ in range(REPEATS):
        _synchronise(device)
        started = time.perf_counter()
        here.copy_(there)
        there.copy_(here)
        _synchronise(device)
        took.append(time.perf_counter() - started)
    return min(took)


def _too_large(device: str, case: Case) -> str:
    """Why this machine has no room for it; "" if it has."""
    host = case.mb * (2 * case.workers + 3)  # versions, and where gradients land
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
    has = int(lines["MemAvailable"].split()[0]) // 1000
    if host > has // 2:
        return f"needs {host / 1000:.0f} GB of the host's memory, {has / 1000:.0f} are free"
    if device == "cuda":
        free = int(run_workers(1, lambda _: torch.cuda.mem_get_info(0)[0])[0]) // 10**6
        if HELD * case.mb * case.workers > 0.9 * free:
            return f"needs {HELD * case.mb * case.workers / 1000:.0f} GB of the GPU, {free / 1000:.0f} are free"
    return ""


def _pushes(device: str, case: Case, seconds: float) -> float:
    """Pushes per second of all workers, each with its update and the pull after it."""

    def task(place: str) -> tuple[Module, Callable[[], None]]:
        model = Module()
        for number in range(TENSORS):
            values = torch.zeros(case.mb * 10**6 // 4 // TENSORS, device=place)
            model.register_parameter(f"tensor_{number}", Parameter(values))
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        return model, lambda: None

    return _together(device, case.workers, task, seconds, Settings(shards=case.shards, host=case.host))


def _together(device: str, workers: int, task: Task, seconds: float, settings: Settings) -> float:
    """Updates per second of all workers; each measures after its own warm-up, and all begin together."""
    run = SharedRun(workers, settings)

    def body(worker: int) -> float:
        model, backward = task(device)
        joined = join(run, run.member(worker, DEADLINE_S), [SGD(model.parameters(), lr=0.01)])
        joined.start()
        joined.begin()

        def step() -> None:
            backward()
            joined.clients[0].push()

        rate = _rate(device, step, seconds)
        joined.finish()
        return rate

    def serve_one(number: int) -> None:
        shapes = [p.shape for p in task("cpu")[0].parameters()]
        serve(run, number, DEADLINE_S, [SGD([Parameter(torch.zeros(shape)) for shape in shapes], lr=0.01)])

    try:
        if run.servers:
            rates = run_workers(workers, body, servers=run.servers, serve=serve_one, threads=1)
        else:
            rates = run_workers(workers, body)  # which share the cores
        return float(sum(rates))
    finally:
        run.close()


def _rate(device: str, step: Callable[[], object], seconds: float) -> float:
    """Steps per second, after the warm-up."""
    for _ in range(WARM_UP):
        step()
    _synchronise(device)
    steps, started = 0, time.perf_counter()
    while time.perf_counter() < started + seconds:
        step()
        steps += 1
    _synchronise(device)
    return steps / (time.perf_counter() - started)


# --- ResNet-50 -------------------------------------------------------------------------------------------------------


def convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Sequential:
    """A convolution and its normalisation; keeps height and width, divided by the stride."""
    layer = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs))


class Bottleneck(Module):
    """[n, inputs, h, w] to [n, 4 width, h / stride, w / stride]."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = WIDER * width
        self.body = nn.Sequential(
            convolution(inputs, width, 1), nn.ReLU(inplace=True),
            convolution(width, width, 3, stride), nn.ReLU(inplace=True), convolution(width, outputs, 1),
        )  # fmt: skip
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Sequential() if same else convolution(inputs, outputs, 1, stride)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, inputs: Tensor) -> Tensor:
        out: Tensor = self.relu(self.body(inputs) + self.shortcut(inputs))
        return out


def resnet50(classes: int = 1000) -> nn.Sequential:
    """[n, 3, h, w] to [n, classes]; 25.6 M parameters (He et al. 2016, table 1; strides in the 3 x 3 convolutions)."""
    layers: list[Module] = [convolution(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for width, blocks, stride in STAGES:
        for block in range(blocks):
            layers.append(Bottleneck(inputs, width, stride if block == 0 else 1))
            inputs = WIDER * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


def _systems(device: str, gpus: int) -> dict[str, Callable[[float], float]]:
    """Functions that train ResNet-50 for some seconds and return updates per second. An update of DDP is of as many
    batches as workers."""

    def together(workers: int, seconds: float) -> float:
        return _together(device, workers, _task, seconds, Settings())

    systems: dict[str, Callable[[float], float]] = {"one process": partial(_ddp, device, 0)}
    systems |= {f"AsyncPS x {workers}, one device": partial(together, workers) for workers in SHARING}
    systems |= {f"DDP x {workers}": partial(_ddp, device, workers) for workers in sorted({1, max(1, gpus)})}
    return systems


def _task(device: str) -> tuple[Module, Callable[[], None]]:
    """A model, and a function that computes gradients into it."""
    model, images = _resnet(device)
    return model, lambda: _backward(model, images)


def _resnet(device: str, number: int = 0) -> tuple[Module, Tensor]:
    """A model and a batch for it."""
    place = torch.device(device, number) if device == "cuda" else torch.device(device)
    if device == "cuda":
        torch.cuda.set_device(place)
    torch.manual_seed(0)
    batch, side = IMAGES[device]
    return resnet50().to(place), torch.rand(batch, 3, side, side, device=place)


def _backward(model: Module, images: Tensor) -> None:
    model.zero_grad(set_to_none=True)
    labels = torch.zeros(len(images), dtype=torch.int64, device=images.device)
    torch.autograd.backward(cross_entropy(model(images), labels))


def _ddp(device: str, workers: int, _seconds: float = 0.0) -> float:
    """Steps per second of plain torch; 0 workers: one process without DDP."""
    with tempfile.TemporaryDirectory() as folder:

        def body(worker: int) -> float:
            model, images = _resnet(device, worker)
            started = 0.0
            if workers:
                backend = "nccl" if device == "cuda" else "gloo"
                distributed.init_process_group(
                    backend, init_method=f"file://{folder}/store", rank=worker, world_size=workers
                )
                model = DistributedDataParallel(model)
            optimizer = SGD(model.parameters(), lr=0.01)
            for number in range(WARM_UP + STEPS[device]):
                if number == WARM_UP:
                    _synchronise(device)
                    started = time.perf_counter()
                _backward(model, images)
                optimizer.step()
            _synchronise(device)
            took = time.perf_counter() - started
            if workers:
                distributed.destroy_process_group()
            return STEPS[device] / took

        return float(run_workers(max(1, workers), body, threads=1)[0])


def _synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


# --- what is told ----------------------------------------------------------------------------------------------------


def table(figures: dict[str, Any]) -> str:
    """The figures in Markdown. What was not measured says why."""
    lines = ["| copies alone, down and up | ms | GB/s |", "|---|---:|---:|"]
    for mb, seconds in figures["copies"].items():
        lines.append(f"| {mb} MB | {1000 * seconds:.1f} | {2 * float(mb) / 1000 / seconds:.1f} |")
    lines += ["", "| parameters | shards | host | workers | pushes and pulls/s | of copies alone |"]
    lines += ["|---:|---:|---|---:|---:|---:|"]
    for row in sorted(figures["pushes"], key=lambda row: (row["mb"], row["shards"], row["host"], row["workers"])):
        cells = (
            f"{row['per_s']:.1f} | {row['of_copies']:.0%}" if "per_s" in row else f"not measured: {row['skipped']} | -"
        )
        lines.append(f"| {row['mb']} MB | {row['shards']} | {row['host']} | {row['workers']} | {cells} |")
    model, rates = figures["model"], figures["updates_per_s"]
    batch, side = model["images"]
    lines += [
        "", f"ResNet-50, {model['parameters'] / 1e6:.1f} M parameters, batches of {batch} x {side}², SGD:", "",
        "| system | updates/s | of one process |", "|---|---:|---:|",
    ]  # fmt: skip
    for name, rate in rates.items():
        of_one = "-" if not (rate and rates["one process"]) else f"{rate / rates['one process']:.2f}"
        lines.append(f"| {name} | {'not measured: no time was left' if rate is None else f'{rate:.2f}'} | {of_one} |")
    return "\n".join(lines)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--limit-s", type=float, default=120.0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    gpus = run_workers(1, lambda _: torch.cuda.device_count())[0] if given.device == "cuda" else 0

    def keep(figures: dict[str, Any]) -> None:
        if given.json is not None:
            given.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")

    print(table(measured(given.device, gpus, given.limit_s, keep)))


if __name__ == "__main__":
    main()
