"""Lightning's own example of tensor parallelism with FSDP2, as it stands in a checkout of its repository, made small.

Nothing of it is here: LIGHTNING names the folder of the checkout.
"""

import os
import sys
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from torch.nn.functional import cross_entropy

from scalebook import ModelParallel
from tests.clients.case import Setting
from tests.clients.fitting import make_trainer, parts, seeded, size

EXAMPLE = Path(os.environ.get("LIGHTNING", "/tmp/lightning")) / "examples" / "pytorch" / "tensor_parallel"
UPDATES, BATCHES = 4, 16
"""All its batches make one update, so that it does not matter in which order shards take the samples."""
sys.path.insert(0, str(EXAMPLE))

import model as example_model  # type: ignore[import-not-found]  # noqa: E402  # of the example's folder
import train as example  # type: ignore[import-not-found]  # noqa: E402


def small(**_: Any) -> Any:
    """In place of a model of 7 B parameters."""
    return example_model.ModelArgs(vocab_size=64, dim=32, n_layers=2, n_heads=4, multiple_of=16, max_seq_len=128)


class Begin(Callback):
    """The example draws its weights when training starts; these take their place, the same in each way."""

    def __init__(self, weights: dict[str, Tensor]) -> None:
        self.weights = weights

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if trainer.global_step == batch_idx == 0:
            trainer.strategy.load_model_state_dict({"state_dict": self.weights})


def by_tensor(setting: Setting) -> dict[str, float]:
    return _trained(setting)


def by_shards(setting: Setting) -> dict[str, float]:
    """Its layers then compute in bf16."""
    return _trained(setting)


def _trained(setting: Setting) -> dict[str, float]:
    example.ModelArgs = small
    alone = {"strategy": ModelParallel()} if "strategy" not in setting.trainer else {}
    begin: Any = seeded(example.Llama3)
    made = make_trainer(
        setting, [Begin(begin.state_dict())], max_epochs=UPDATES, accumulate_grad_batches=BATCHES // parts(setting),
        **alone,
    )  # fmt: skip
    with made.init_module(empty_init=True):
        model = example.Llama3()
    made.fit(model)
    made.save_checkpoint(setting.folder / "end.ckpt")
    plain: Any = example.Llama3()
    plain.load_state_dict(torch.load(setting.folder / "end.ckpt", weights_only=True)["state_dict"])
    tokens = next(iter(plain.train_dataloader()))
    with torch.no_grad():
        loss = cross_entropy(plain.model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    return {"loss": float(loss), "weights": size(plain)}
