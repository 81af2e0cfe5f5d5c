"""Random numbers: several that draw in one process in turn, each as if alone; and those of workers."""

import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from torch import Tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel
from torch.utils.data import DataLoader, Dataset, IterableDataset, WeightedRandomSampler
from typing_extensions import override

from scalebook.training.engine.rules.clock_settings import ClockSettings, Distribution
from scalebook.training.lightning import DDP, AsyncPS, ModelParallel, Peers
from scalebook.training.lightning.random_streams import NumpyStream, ProcessStream, PythonStream

pytestmark = pytest.mark.long


def gauss_of(seed: int) -> Callable[[], float]:
    draw = random.Random(seed)
    return lambda: draw.gauss(0, 1)


DRAWS: list[tuple[type[ProcessStream], Callable[[], float], Callable[[int], Callable[[], float]]]] = [
    (PythonStream, lambda: random.gauss(0, 1), gauss_of),
    (NumpyStream, lambda: float(np.random.randn()), lambda seed: np.random.RandomState([seed, 0]).randn),
    (NumpyStream, np.random.rand, lambda seed: np.random.RandomState([seed, 0]).rand),
]


@pytest.fixture
def put_back() -> Iterator[None]:
    python, numpy = random.getstate(), np.random.get_state()
    yield
    random.setstate(python)
    np.random.set_state(numpy)


@pytest.mark.usefixtures("put_back")
@pytest.mark.parametrize(("kind", "draw", "alone"), DRAWS, ids=["python", "pairs", "numpy"])
def test_each_draws_as_if_alone(
    kind: type[ProcessStream], draw: Callable[[], float], alone: Callable[[int], Callable[[], float]]
) -> None:
    """In an order by chance, with turns without a draw; pairs of normal numbers are left half used."""
    stream, order = kind(), random.Random(3)
    states = [stream.seeded(seed) for seed in range(3)]
    expected = [alone(seed) for seed in range(3)]
    for _ in range(200):
        who = order.randrange(3)
        stream.load(states[who])
        for _ in range(order.randrange(4)):
            assert draw() == expected[who]()
        states[who] = stream.state()


# --- of workers ------------------------------------------------------------------------------------------------------

SAMPLES, EPOCHS = 16, 2
CLOCK = ClockSettings(Distribution("uniform", 0.1, 0.0))
Drawn = list[list[tuple[float, ...]]]
"""By worker, what it drew, in order: of torch, NumPy and Python each time."""


def draw() -> Tensor:
    python, numpys = random.random(), np.random.rand()
    return torch.tensor([float(torch.rand((), dtype=torch.float64)), numpys, python], dtype=torch.float64)


class Noisy(Dataset[Tensor]):
    """Draws in the process that loads, as an augmentation does; then the sample's number."""

    def __init__(self, samples: int = SAMPLES) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    @override
    def __getitem__(self, number: int) -> Tensor:
        return torch.cat([draw(), torch.tensor([float(number)])])


class Writes(LightningModule):
    """Writes each batch, and what it draws itself, to a file of its worker; `draws` also in its constructor."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.layer: torch.nn.Module = torch.nn.Linear(4, 1)

    @override
    def forward(self, inputs: Tensor) -> Tensor:
        return self.layer(inputs)  # type: ignore[no-any-return]

    @override
    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        rows = [*batch.tolist(), [*draw().tolist(), -1.0]]
        with (self.folder / f"{self.trainer.global_rank}.jsonl").open("a") as file:
            file.write(json.dumps(rows) + "\n")
        loss: Tensor = self(batch.float()).square().mean()
        return loss

    @override
    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.01)


def fit(
    folder: Path, strategy: Any, devices: int, loader: DataLoader[Any], model: type[Writes] = Writes, **settings: Any
) -> list[list[list[float]]]:
    """Fit, and return the rows that each worker has written, in order."""
    folder.mkdir()
    settings = {"max_epochs": EPOCHS, **settings}
    made = Trainer(
        strategy=strategy, devices=devices, accelerator="cpu", logger=False, default_root_dir=folder,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, **settings,
    )  # fmt: skip
    made.fit(model(folder), loader)
    paths = sorted(folder.glob("*.jsonl"))
    return [[row for line in path.read_text().splitlines() for row in json.loads(line)] for path in paths]


def drawn(rows: list[list[list[float]]]) -> Drawn:
    return [[tuple(row[:3]) for row in of_worker] for of_worker in rows]


SEVERAL: dict[str, Callable[[], Any]] = {
    "async": lambda: AsyncPS(workers=2),
    "sync": lambda: AsyncPS(workers=2, rule="sync"),
    "process": lambda: AsyncPS(workers=2, rule="sync", host="process"),
    "local": lambda: AsyncPS(workers=2, rule="sync", local="local_sgd"),
    "peers": lambda: Peers(workers=2),
    "ddp": DDP,
    "shards": ModelParallel,
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", SEVERAL)
def test_each_worker_draws_its_own_and_the_same_again(name: str, tmp_path: Path) -> None:
    """Worker 0 draws what one process would."""
    runs = []
    for run in range(2):
        seed_everything(5, verbose=False)
        runs.append(drawn(fit(tmp_path / str(run), SEVERAL[name](), 2, DataLoader(Noisy(), 2))))
    seed_everything(5, verbose=False)
    (alone,) = drawn(fit(tmp_path / "alone", "auto", 1, DataLoader(Noisy(), 2)))

    assert len(runs[0]) == 2
    if name == "async":  # how many batches a worker has in an epoch depends on time
        assert [of_worker[:3] for of_worker in runs[0]] == [of_worker[:3] for of_worker in runs[1]]
    else:
        assert runs[0] == runs[1]
    first = 3 if name == "async" else 3 * SAMPLES // 2 // 2  # an epoch's
    assert runs[0][0][:first] == alone[:first]
    everything = [row for of_worker in runs[0] for row in of_worker]
    for generator in range(3):
        assert len({row[generator] for row in everything}) == len(everything)


ALONE: dict[str, Callable[[], Any]] = {
    "async": lambda: AsyncPS(workers=1),
    "process": lambda: AsyncPS(workers=1, host="process"),
    "virtual": lambda: AsyncPS(workers=1, host="virtual", clock=CLOCK),
    "peers": lambda: Peers(workers=1),
    "ddp": DDP,
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", ALONE)
@pytest.mark.parametrize("seeded", [True, False])
def test_one_worker_draws_what_one_process_draws(name: str, seeded: bool, tmp_path: Path) -> None:
    """In two fits of a script, and after them; the first model is made before the seed, the second after a fit."""

    def script(folder: Path, strategy: Callable[[], Any]) -> tuple[Drawn, list[float]]:
        if seeded:
            seed_everything(5, verbose=False)
        else:
            torch.manual_seed(1)
            np.random.seed(2)
            random.seed(3)
        folder.mkdir()
        fits = [
            drawn(fit(folder / str(n), strategy(), 1, DataLoader(Noisy(), 2, shuffle=name != "ddp"))) for n in range(2)
        ]
        return [rows for each in fits for rows in each], draw().tolist()

    expected = script(tmp_path / "auto", lambda: "auto")
    assert script(tmp_path / name, ALONE[name]) == expected


@pytest.mark.sampled
@pytest.mark.parametrize("rule", ["sync", "async"])
def test_virtual_workers_draw_what_real_ones_draw(rule: Any, tmp_path: Path) -> None:
    """But of torch's, where each real worker's loader takes a seed for its processes in each epoch."""
    seed_everything(5, verbose=False)
    real = drawn(fit(tmp_path / "real", AsyncPS(workers=2, rule="sync"), 2, DataLoader(Noisy(), 2)))
    seed_everything(5, verbose=False)
    (virtual,) = drawn(
        fit(tmp_path / "v", AsyncPS(workers=2, rule=rule, host="virtual", clock=CLOCK), 1, DataLoader(Noisy(), 2))
    )
    everything = [row for of_worker in real for row in of_worker]
    assert sorted(row[1:] for row in virtual) == sorted(row[1:] for row in everything)
    assert len({row[0] for row in virtual}) == len(virtual)


class Splits(Writes):
    """Two layers, for workers that compute one batch together."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.layer = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))

    def parallel_plan(self) -> dict[str, Any]:
        return {"layer.0": ColwiseParallel(), "layer.1": RowwiseParallel()}

    def stages(self) -> list[torch.nn.Module]:
        return list(self.layer.children())


@pytest.mark.parametrize("split", [{"tensor": 2}, {"stages": 2, "microbatches": 1, "schedule": "gpipe"}], ids=str)
def test_workers_that_compute_one_batch_together_draw_the_same(split: Any, tmp_path: Path) -> None:
    """In the data and in the step; and other numbers than those of the next batch."""
    seed_everything(5, verbose=False)
    rows = drawn(fit(tmp_path / "fit", ModelParallel(**split), 4, DataLoader(Noisy(), 2), model=Splits))
    assert rows[0] == rows[1]
    assert rows[2] == rows[3]
    different = [*rows[0], *rows[2]]
    for generator in range(3):
        assert len({row[generator] for row in different}) == len(different) == 2 * 2 * 4 * 3


def test_without_a_seed_workers_differ_too(tmp_path: Path) -> None:
    for name, strategy in (("sync", AsyncPS(workers=2, rule="sync")), ("ddp", DDP())):
        rows = [
            row for of_worker in drawn(fit(tmp_path / name, strategy, 2, DataLoader(Noisy(), 2))) for row in of_worker
        ]
        for generator in range(3):
            assert len({row[generator] for row in rows}) == len(rows)


# --- the order of data that is divided by rank -----------------------------------------------------------------------


def numbers(rows: list[list[list[float]]], epochs: int) -> list[list[int]]:
    """The samples of each epoch, in order, of all workers that had as many batches each."""
    seen = [[int(row[3]) for row in of_worker if row[3] >= 0] for of_worker in rows]
    each = len(seen[0]) // epochs
    return [sorted(n for mine in seen for n in mine[epoch * each : (epoch + 1) * each]) for epoch in range(epochs)]


def test_ddp_divides_what_a_sampler_draws(tmp_path: Path) -> None:
    """Lightning lets each rank draw all of it, and take its part."""
    seed_everything(5, verbose=False)
    sampler = WeightedRandomSampler([1.0] * 64, 32, replacement=False)
    rows = fit(tmp_path / "fit", DDP(), 2, DataLoader(Noisy(64), 4, sampler=sampler), max_epochs=4)
    epochs = numbers(rows, 4)
    assert [len(set(samples)) for samples in epochs] == [32] * 4
    assert len({tuple(samples) for samples in epochs}) == 4


class ByRank:
    """A batch sampler of the user's, which shuffles by the process's random numbers and takes its rank's part."""

    def __init__(self, generator: str) -> None:
        self.generator = generator

    def __iter__(self) -> Iterator[list[int]]:
        order = list(range(SAMPLES))
        if self.generator == "python":
            random.shuffle(order)
        else:
            order = (np.random.permutation(SAMPLES) if self.generator == "numpy" else torch.randperm(SAMPLES)).tolist()
        rank = int(os.environ["RANK"])
        for first in range(rank, SAMPLES, 4):
            yield [order[first], order[first + 2]]

    def __len__(self) -> int:
        return SAMPLES // 4


@pytest.mark.sampled
@pytest.mark.parametrize("generator", ["torch", "numpy", "python"])
@pytest.mark.parametrize("name", ["ddp", "sync", "peers"])
def test_a_sampler_that_divides_by_rank(name: str, generator: str, tmp_path: Path) -> None:
    loader: DataLoader[Any] = DataLoader(Noisy(), batch_sampler=ByRank(generator))
    rows = fit(tmp_path / "fit", SEVERAL[name](), 2, loader, use_distributed_sampler=False)
    assert numbers(rows, EPOCHS) == [list(range(SAMPLES))] * EPOCHS


class Shuffled(IterableDataset[Tensor]):
    """A stream that shuffles by one of the process's random numbers, and adds noise."""

    def __init__(self, generator: str) -> None:
        self.generator = generator

    @override
    def __iter__(self) -> Iterator[Tensor]:
        left = list(range(SAMPLES))
        while left:
            draws = {"torch": float(torch.rand(())), "numpy": np.random.rand(), "python": random.random()}
            number = left.pop(int(draws[self.generator] * len(left)))
            yield torch.cat([draw(), torch.tensor([float(number)])])


@pytest.mark.sampled
@pytest.mark.parametrize("processes", [0, 1])
@pytest.mark.parametrize("generator", ["torch", "numpy", "python"])
def test_a_stream_that_shuffles_by_the_process_is_divided(generator: str, processes: int, tmp_path: Path) -> None:
    seed_everything(5, workers=True, verbose=False)
    loader: DataLoader[Any] = DataLoader(Shuffled(generator), 2, num_workers=processes)
    rows = fit(tmp_path / "fit", AsyncPS(workers=2, rule="sync"), 2, loader)
    assert numbers(rows, EPOCHS) == [list(range(SAMPLES))] * EPOCHS
    noise = [tuple(row) for of_worker in rows for row in of_worker if row[3] >= 0]
    assert len(set(noise)) == len(noise)


@pytest.mark.sampled
@pytest.mark.parametrize("seed_workers", [True, False])
@pytest.mark.parametrize("name", ["ddp", "sync"])
def test_loader_processes_draw_their_own(name: str, seed_workers: bool, tmp_path: Path) -> None:
    seed_everything(5, workers=seed_workers, verbose=False)
    rows = fit(tmp_path / "fit", SEVERAL[name](), 2, DataLoader(Noisy(), 2, num_workers=1))
    everything = [row for of_worker in rows for row in of_worker if row[3] >= 0]
    for generator in range(3):
        assert len({row[generator] for row in everything}) == len(everything)
