"""Building blocks for sequences: a small language model of x-transformers, a learned codebook."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import mse_loss
from vector_quantize_pytorch import VectorQuantize
from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

from tests.clients.case import Setting
from tests.clients.cases.buffers import Apart
from tests.clients.cases.data import clusters, held_out, in_order, loader
from tests.clients.fitting import Simple, trained

TOKENS, LENGTH = 12, 17


class Language(Simple):
    """A decoder with rotary positions."""

    rate = 0.02

    def __init__(self) -> None:
        super().__init__()
        layers = Decoder(dim=32, depth=2, heads=2, attn_dim_head=16, rotary_pos_emb=True)
        self.net = AutoregressiveWrapper(TransformerWrapper(num_tokens=TOKENS, max_seq_len=LENGTH, attn_layers=layers))

    def loss(self, batch: Any) -> Tensor:
        loss: Tensor = self.net(batch[0])
        return loss


def x_transformers(setting: Setting) -> dict[str, float]:
    """Sequences that count up from a random start."""
    begins = torch.randint(TOKENS, (304, 1), generator=torch.Generator().manual_seed(6))
    tokens = (begins + torch.arange(LENGTH)) % TOKENS
    return trained(setting, Language, in_order(setting, tokens[:240]), loader(tokens[240:]))[1]


class Codes(Simple):
    """An autoencoder; its codes follow the samples in the forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = torch.nn.Linear(8, 4), torch.nn.Linear(4, 8)
        self.codes = VectorQuantize(dim=4, codebook_size=16, decay=0.9, commitment_weight=0.25)

    def loss(self, batch: Any) -> Tensor:
        quantized, _, commitment = self.codes(self.encoder(batch[0]))
        loss: Tensor = mse_loss(self.decoder(quantized), batch[0]) + commitment.sum()
        return loss


def codebook(setting: Setting) -> dict[str, float]:
    apart = Apart("codes._codebook.embed", setting.folder)
    found = trained(setting, Codes, in_order(setting, *clusters(240)), held_out(), [apart])[1]
    return {**found, "apart": apart.read()}
