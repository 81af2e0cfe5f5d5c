"""transformers and peft: tiny models with random weights, in modules of one's own."""

from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.callbacks import Callback, EarlyStopping, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from peft import LoraConfig, TaskType, get_peft_model
from torch import Tensor
from torchmetrics import Accuracy
from torchmetrics.text import Perplexity
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    get_linear_schedule_with_warmup,
)

from tests.clients.case import Setting
from tests.clients.cases.data import BATCH, BATCHES, loader
from tests.clients.fitting import best, make_trainer, plainly, saved, seeded

WORDS = 16


def _counting(samples: int, seed: int) -> Tensor:
    """Each next token is the one before plus 1, from anywhere: (samples, 12)."""
    starts = torch.randint(WORDS, (samples, 1), generator=torch.Generator().manual_seed(seed))
    return (starts + torch.arange(12)) % WORDS


class Gpt2(LightningModule):
    """A language model with a metric of the epoch in training."""

    def __init__(self) -> None:
        super().__init__()
        config = GPT2Config(vocab_size=WORDS, n_positions=12, n_embd=16, n_layer=1, n_head=2)
        self.net = GPT2LMHeadModel(config)
        self.train_perplexity, self.train_acc = Perplexity(), Accuracy(task="multiclass", num_classes=WORDS)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        found = self.net(batch[0], labels=batch[0])
        self.train_perplexity(found.logits[:, :-1], batch[0][:, 1:])
        self.train_acc(found.logits[:, :-1].flatten(0, 1), batch[0][:, 1:].flatten())
        self.log("train_perplexity", self.train_perplexity, on_step=False, on_epoch=True)
        self.log("train_acc", self.train_acc, on_step=False, on_epoch=True)
        loss: Tensor = found.loss
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.log("val_loss", self.net(batch[0], labels=batch[0]).loss, sync_dist=True)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        steps = int(self.trainer.estimated_stepping_batches)
        return [optimizer], [{"scheduler": get_linear_schedule_with_warmup(optimizer, 10, steps), "interval": "step"}]


def gpt2(setting: Setting) -> dict[str, float]:
    """With the callbacks that people use, a logger and no bar."""
    held_out = loader(_counting(32, 2))
    model = seeded(Gpt2)
    callbacks: list[Callback] = [
        EarlyStopping("val_loss"),
        LearningRateMonitor("step"),
        best(setting),
        ModelCheckpoint(),
    ]
    trainer = make_trainer(
        setting, callbacks, max_epochs=3, logger=CSVLogger(setting.folder), log_every_n_steps=10, gradient_clip_val=1.0
    )
    trainer.fit(model, loader(_counting(BATCH * BATCHES, 1), shuffle=True), held_out)
    return {"loss": plainly(model, held_out), "saved": saved(setting, Gpt2, held_out)}


class BertWithLora(LightningModule):
    """Adapters of low rank train, the rest is frozen."""

    def __init__(self) -> None:
        super().__init__()
        config = BertConfig(
            vocab_size=WORDS, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
            max_position_embeddings=12,
        )  # fmt: skip
        adapters = LoraConfig(task_type=TaskType.SEQ_CLS, r=4, lora_alpha=16, target_modules=["query", "value"])
        self.net = get_peft_model(BertForSequenceClassification(config), adapters)
        self.val_acc = Accuracy(task="binary")

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        loss: Tensor = self.net(input_ids=batch[0], labels=batch[1]).loss
        self.log("train_loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        found = self.net(input_ids=batch[0], labels=batch[1])
        self.val_acc(found.logits.argmax(1), batch[1])
        self.log("val_acc", self.val_acc)
        self.log("val_loss", found.loss, sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW([one for one in self.parameters() if one.requires_grad], lr=1e-2)


def bert_with_lora(setting: Setting) -> dict[str, float]:
    def of(samples: int, seed: int) -> tuple[Tensor, Tensor]:
        tokens = _counting(samples, seed)
        return tokens, (tokens[:, 0] < WORDS // 2).long()

    held_out = loader(*of(32, 2))
    model = seeded(BertWithLora)
    make_trainer(setting, [best(setting)], max_epochs=8).fit(
        model, loader(*of(BATCH * BATCHES, 1), shuffle=True), held_out
    )
    return {"loss": plainly(model, held_out), "saved": saved(setting, BertWithLora, held_out)}
