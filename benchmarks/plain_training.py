"""Lightning's Trainer in one process, which prints and stores nothing, and means over seeds."""

import logging
import statistics
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from lightning.pytorch import Trainer


def be_quiet() -> None:
    """Use one thread, and silence Lightning."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", category=UserWarning)
    torch.set_num_threads(1)


def plain_trainer(**settings: Any) -> Trainer:
    """A Trainer for one process on the CPU."""
    return Trainer(
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **settings,
    )


def mean(figures: Sequence[float], digits: int) -> str:
    """`0.340 (sd 0.005)`."""
    spread = f" (sd {statistics.stdev(figures):.{digits}f})" if len(figures) > 1 else ""
    return f"{statistics.mean(figures):.{digits}f}{spread}"
