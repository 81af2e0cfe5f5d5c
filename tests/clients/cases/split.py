"""Language models of transformers from their configs, over several workers: each is split by the plan that it brings,
or by shards alone."""

from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from tests.clients.case import Setting
from tests.clients.cases.data import loader
from tests.clients.fitting import best, make_trainer, parts, plainly, saved, seeded, size

WORDS, LENGTH = 32, 12
SAMPLES, UPDATES = 64, 12
"""All samples make one update, so that it does not matter in which order shards take them."""
COMMON: dict[str, Any] = {
    "vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": LENGTH, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
}  # fmt: skip
GROUPED: dict[str, Any] = {**COMMON, "num_key_value_heads": 2}


class Language(LightningModule):
    """Predicts the next word; says nothing of a split."""

    def __init__(self, net: Any) -> None:
        super().__init__()
        self.net = net

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        loss: Tensor = self.net(input_ids=batch[0], labels=batch[0]).loss
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.log("val_loss", self.net(input_ids=batch[0], labels=batch[0]).loss, sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)  # Adam would enlarge the keys' rounding


def _counting(samples: int, seed: int) -> Tensor:
    starts = torch.randint(WORDS, (samples, 1), generator=torch.Generator().manual_seed(seed))
    return (starts + torch.arange(LENGTH)) % WORDS


def _trained(setting: Setting, kind: Any, config: Any) -> dict[str, float]:
    def make() -> Language:
        return Language(kind(config))

    held_out, model = loader(_counting(32, 2)), seeded(make)
    made = make_trainer(setting, [best(setting)], max_epochs=UPDATES, gradient_clip_val=1.0)
    made.fit(model, loader(_counting(SAMPLES, 1), batch=SAMPLES // parts(setting)), held_out)
    return {"loss": plainly(model, held_out), "weights": size(model), "saved": saved(setting, make, held_out)}


def llama(setting: Setting) -> dict[str, float]:
    return _trained(setting, LlamaForCausalLM, LlamaConfig(**GROUPED))


def tied_llama(setting: Setting) -> dict[str, float]:
    """Its table of words is its output layer."""
    return _trained(setting, LlamaForCausalLM, LlamaConfig(**GROUPED, tie_word_embeddings=True))


def qwen3(setting: Setting) -> dict[str, float]:
    """With a normalisation of each head's queries and keys."""
    return _trained(setting, Qwen3ForCausalLM, Qwen3Config(**GROUPED, head_dim=8))


def gpt_neox(setting: Setting) -> dict[str, float]:
    """With queries, keys and values in one layer."""
    no_dropout = {"attention_dropout": 0.0, "hidden_dropout": 0.0, "classifier_dropout": 0.0}
    return _trained(setting, GPTNeoXForCausalLM, GPTNeoXConfig(**COMMON, **no_dropout))


def gpt2(setting: Setting) -> dict[str, float]:
    no_dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    config = GPT2Config(
        vocab_size=WORDS, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=4, bos_token_id=None, eos_token_id=None,
        **no_dropout,
    )  # fmt: skip
    return _trained(setting, GPT2LMHeadModel, config)


def bert(setting: Setting) -> dict[str, float]:
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return _trained(setting, BertForMaskedLM, BertConfig(**COMMON, **no_dropout))
