"""Memory of a run under AsyncPS: the sum over its processes (PSS, each page counted once) at its peak, Python included.

`python -m benchmarks.memory [--parameters 50_000_000] [--workers 2]`, a minute. Read the factor: the
peak over the bytes of the parameters.
"""

import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import psutil

from benchmarks.common import parser

EVERY_S: Final = 0.05
LAYERS: Final = 8


def run(optimizer: str, parameters: int, workers: int, steps: int) -> None:
    """Fit a model with so many parameters, in this process."""
    import torch
    from lightning.pytorch import LightningModule, Trainer
    from torch.utils.data import DataLoader, TensorDataset

    from scalebook.training.lightning import AsyncPS

    width = round((parameters / LAYERS) ** 0.5)

    class Wide(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            layers = [torch.nn.Linear(width, width, bias=False) for _ in range(LAYERS)]
            self.net = torch.nn.Sequential(*layers)

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            loss: torch.Tensor = self.net(batch[0]).square().mean()
            return loss

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.net(batch[0])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            if optimizer == "adam":
                return torch.optim.Adam(self.parameters(), lr=1e-4)
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    torch.manual_seed(0)
    loader: Any = DataLoader(TensorDataset(torch.randn(2 * steps, width)), batch_size=2)
    with tempfile.TemporaryDirectory() as folder:
        made = Trainer(
            accelerator="cpu", strategy=AsyncPS(workers=workers), max_epochs=1, logger=False, default_root_dir=folder,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        made.fit(Wide(), loader, DataLoader(loader.dataset, batch_size=2))


def measured(optimizer: str, parameters: int, workers: int, steps: int, imported: bool = False) -> int:
    """Bytes at the peak of one such run, in processes of its own. With `imported` they are forked from one that has
    imported everything; of shared pages their share counts."""
    context = multiprocessing.get_context("forkserver" if imported else "spawn")
    context.set_forkserver_preload(["lightning.pytorch", "scalebook.training.lightning"])
    process = context.Process(target=run, args=(optimizer, parameters, workers, steps))  # type: ignore[attr-defined]
    process.start()
    assert process.pid is not None
    peak = 0
    while process.is_alive():
        began = time.monotonic()
        with _standing_still(process.pid) as stopped:
            peak = max(peak, sum(map(_pss, stopped)))
        time.sleep(max(EVERY_S, 2 * (time.monotonic() - began)))  # on a busy machine most of the time is still its own
    process.join()
    if process.exitcode:
        sys.exit(f"the run with {optimizer} ended with {process.exitcode}")
    return peak


@contextmanager
def _standing_still(pid: int) -> Iterator[list[psutil.Process]]:
    """A process and its descendants, stopped. On a busy machine seconds pass between reading the first and the last,
    and memory that moves from one to another meanwhile would count twice."""
    stopped = list[psutil.Process]()
    try:
        while new := [one for one in _tree(pid) if one not in stopped]:
            stopped += new
            for one in new:
                with suppress(psutil.NoSuchProcess):
                    one.suspend()
        yield stopped
    finally:
        for one in stopped:
            with suppress(psutil.NoSuchProcess):
                one.resume()


def _tree(pid: int) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    return []


def _pss(process: psutil.Process) -> int:
    with suppress(psutil.NoSuchProcess):  # it has ended
        return int(process.memory_full_info().pss)
    return 0


def main() -> None:
    """Print the table."""
    options = parser(__doc__)
    options.add_argument("--parameters", type=int, default=50_000_000)
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--steps", type=int, default=8)
    given = options.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    size = 4 * given.parameters
    print("| optimizer | parameters | peak |\n|---|---|---|")
    for optimizer in ("sgd", "adam"):
        peak = measured(optimizer, given.parameters, given.workers, given.steps)
        print(f"| {optimizer} | {size / 1e6:.0f} MB | {peak / 1e9:.2f} GB ({peak / size:.1f} x) |", flush=True)


if __name__ == "__main__":
    main()
