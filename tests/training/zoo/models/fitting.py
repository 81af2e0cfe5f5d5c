"""Fits a model the way the command does: a config of class paths, with the optimizer in it."""

from pathlib import Path
from typing import Any

from scalebook.training.cli.lightning_cli import TrainingCLI


def fit(
    folder: Path,
    model: dict[str, Any],
    epochs: int = 1,
    lr: float = 0.002,
    data: dict[str, Any] | None = None,
    trainer: dict[str, Any] | None = None,
    ckpt_path: Path | None = None,
    optimizer: dict[str, Any] | None = None,
) -> TrainingCLI:
    """The CLI after its fit."""
    config = {
        "seed_everything": 1,
        "trainer": {
            "accelerator": "cpu",
            "devices": 1,
            "max_epochs": epochs,
            "default_root_dir": str(folder),
            "enable_model_summary": False,
            **(trainer or {}),
        },
        "model": model,
        "data": data or {"class_path": "scalebook.training.zoo.data.Digits"},
        "optimizer": optimizer or {"class_path": "torch.optim.Adam", "init_args": {"lr": lr}},
        "ckpt_path": None if ckpt_path is None else str(ckpt_path),
    }
    return TrainingCLI("fit", config, None)
