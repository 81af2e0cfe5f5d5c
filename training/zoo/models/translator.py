"""A small Transformer that translates: an encoder of the sentence, a decoder of its translation."""

import math
from collections.abc import Iterator
from typing import Any, Final, NoReturn

import torch
import torch.nn.functional as F
from jsonargparse.typing import ClosedUnitInterval, PositiveInt
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel
from torch.nn import Dropout, Module
from torchmetrics.functional.text import chrf_score
from typing_extensions import override

from scalebook.training.base import ConfigError, extras
from scalebook.training.engine.rules import ArgumentError
from scalebook.training.tracking import names
from scalebook.training.zoo.data.parallel_text import ParallelText, TranslationBatch
from scalebook.training.zoo.data.subwords import END, PADDING, START, Subwords
from scalebook.training.zoo.models.image_model import plain_hyperparameters
from scalebook.training.zoo.models.other_data import refuse_other_data


class SplitDropout(ParallelStyle):
    """A style for `parallel_plan()`: between a `ColwiseParallel` and a `RowwiseParallel` layer, each worker draws one
    process's mask and applies its part. Without it all workers would draw the same mask, for different units.

    Args:
        width: Units of the layer before, of all workers.
    """

    def __init__(self, width: int) -> None:
        self.width = width

    @override
    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        assert isinstance(module, Dropout)
        rank, workers = device_mesh.get_local_rank(), device_mesh.size()

        def forward(units: Tensor) -> Tensor:
            """Units [..., this worker's part of the width]."""
            if not module.training or module.p == 0:
                return units
            mask = F.dropout(
                torch.ones(*units.shape[:-1], self.width, dtype=units.dtype, device=units.device), module.p
            )
            parts = mask.chunk(workers, -1)
            return units * parts[rank]

        module.forward = forward  # type: ignore[method-assign, assignment]  # as torch's styles do
        return module


CHECKPOINT_KEY: Final = "subwords"
EVALUATED: Final = 64
"""Sentences whose logits are in memory at once outside of training."""


class Translator(LightningModule):
    """Transformer that reads a sentence in one language and writes it in another, subword by subword.

    Vaswani et al. 2017 ("Attention is all you need") with normalisation before each part and one table of embeddings
    for source, target and output. The loss is the cross-entropy of the next subword, in nats per subword. To translate,
    the model takes the likeliest subword each time. chrF (Popović 2015), from 0 to 1, compares runs of one to six
    letters in the translations and the references: the F-score with beta 2, over all translated sentences.

    Args:
        width: Number of values in an embedding and between the layers.
        layers: Number of layers of the encoder, and also of the decoder.
        heads: Number of heads in each attention layer, among which the width is divided.
        dropout: Dropout rate on the output of each part.
        translated: Number of validation sentences to translate for chrF, taken from the start.
    """

    metrics = (names.VAL_CHRF, names.VAL_LOSS)

    needs = ("sentencepiece",)

    def __init__(
        self,
        width: PositiveInt = 96,
        layers: PositiveInt = 2,
        heads: PositiveInt = 4,
        dropout: ClosedUnitInterval = 0.1,
        translated: PositiveInt = 64,
    ) -> None:
        super().__init__()
        extras.require("model", type(self))
        self.save_hyperparameters()
        if width % (2 * heads):
            raise ConfigError(
                "model.init_args.width",
                f"is {width}, which does not give each of {heads} heads an even width",
                f"Choose a multiple of {2 * heads}, or another number of heads.",
            )
        self.width, self.layers, self.heads = int(width), int(layers), int(heads)
        self.dropout, self.translated = float(dropout), int(translated)
        self.subwords: Subwords | None = None

    @override
    def configure_model(self) -> None:
        if self.subwords is not None or self._trainer is None:
            return
        refuse_other_data(self, ParallelText, "sentences in two languages", "Choose Messages.")
        data = getattr(self._trainer, "datamodule", None)
        if not isinstance(data, ParallelText):
            raise ConfigError(
                "data",
                f"{type(data).__name__} is not a ParallelText, which Translator needs",
                "Choose Messages, or derive a class from scalebook.training.zoo.data.ParallelText.",
            )
        self.build(data.subwords)

    def build(self, subwords: Subwords) -> None:
        """Make the layers, for these subwords."""
        self.subwords = subwords
        self.embedding = nn.Embedding(len(subwords), self.width, padding_idx=PADDING)
        shape = (self.width, self.heads, 4 * self.width, self.dropout)
        encoder = nn.TransformerEncoderLayer(*shape, batch_first=True, norm_first=True)
        decoder = nn.TransformerDecoderLayer(*shape, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(encoder, self.layers, nn.LayerNorm(self.width), enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(decoder, self.layers, nn.LayerNorm(self.width))
        for weights in (*self.encoder.parameters(), *self.decoder.parameters()):
            if weights.dim() > 1:  # the layers are copies of one, and would begin alike
                nn.init.xavier_uniform_(weights)
        nn.init.normal_(self.embedding.weight, std=self.width**-0.5)
        with torch.no_grad():
            self.embedding.weight[PADDING] = 0

    def parallel_plan(self) -> dict[str, ParallelStyle]:
        """The feed-forward part of each layer, for `ModelParallel`; attention packs its weights, and stays whole."""
        plan: dict[str, ParallelStyle] = {}
        for stack in ("encoder", "decoder"):
            plan[f"{stack}.layers.*.linear1"] = ColwiseParallel()
            plan[f"{stack}.layers.*.dropout"] = SplitDropout(4 * self.width)
            plan[f"{stack}.layers.*.linear2"] = RowwiseParallel()
        return plan

    def stages(self) -> NoReturn:
        """ConfigError: there are none."""
        raise ArgumentError(
            "model-not-supported",
            "stages",
            "Translator shares a table between first and last layer, and averages its loss over subwords, not samples",
            "Set stages: 1, and use tensor or shard instead.",
        )

    @override
    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits of the subword after each of the target, float [batch, subwords, vocabulary]."""
        return self._decoded(target, self._encoded(source), source == PADDING)

    @override
    def training_step(self, batch: TranslationBatch, batch_idx: int) -> Tensor:
        source, target = batch
        loss = self._summed(source, target) / _counted(target)
        self.log(names.TRAIN_LOSS, loss, batch_size=len(source))
        return loss

    @override
    def validation_step(self, batch: TranslationBatch, batch_idx: int) -> None:
        source, target = batch
        summed = sum(self._summed(*part) for part in _alike(batch))
        loss = summed / _counted(target)
        references = self._subwords.decode(target[: self.translated])
        score = chrf_score(
            self.translate(source[: self.translated]), [[reference] for reference in references], n_word_order=0
        )
        assert isinstance(score, Tensor)
        self.log_dict({names.VAL_CHRF: score, names.VAL_LOSS: loss}, batch_size=len(source), sync_dist=True)

    @override
    def predict_step(self, batch: TranslationBatch, batch_idx: int) -> list[str]:
        """The translation of each sentence."""
        return [text for part in torch.split(batch[0], EVALUATED) for text in self.translate(part)]

    @torch.no_grad()
    def translate(self, source: Tensor) -> list[str]:
        """The translations of int64 [sentences, subwords], each at most twice as long as the longest sentence, and 8.

        The likeliest subword is taken each time.
        """
        source = source[:, : max(1, _longest(source))]
        states, unread = self._encoded(source), source == PADDING
        written = source.new_full((len(source), 1), START)
        ended = torch.zeros(len(source), dtype=torch.bool, device=source.device)
        for _ in range(2 * source.shape[1] + 8):
            following = self._decoded(written, states, unread)[:, -1].argmax(1).masked_fill(ended, PADDING)
            written = torch.cat([written, following.unsqueeze(1)], 1)
            ended |= following == END
            if ended.all():
                break
        return self._subwords.decode(written)

    @override
    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if self.subwords is not None:
            checkpoint[CHECKPOINT_KEY] = torch.frombuffer(bytearray(self.subwords.model), dtype=torch.uint8)
        plain_hyperparameters(self, checkpoint)

    @override
    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        trained_with = checkpoint[CHECKPOINT_KEY].numpy().tobytes()
        if self.subwords is None:
            self.build(Subwords(trained_with))
        elif self.subwords.model != trained_with:
            raise ConfigError(
                "ckpt_path",
                "was trained with other subwords than this data set has",
                "Use the data's earlier vocabulary, limit, val_fraction, split_seed and text.",
            )

    @property
    def _subwords(self) -> Subwords:
        assert self.subwords is not None, "the model is not built. Use a trainer with data, or call `build`"
        return self.subwords

    def _encoded(self, source: Tensor) -> Tensor:
        states: Tensor = self.encoder(self._embedded(source), src_key_padding_mask=source == PADDING)
        return states

    def _decoded(self, target: Tensor, states: Tensor, unread: Tensor) -> Tensor:
        later = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool, device=target.device).triu(1)
        decoded = self.decoder(
            self._embedded(target), states, tgt_mask=later, tgt_is_causal=True, memory_key_padding_mask=unread
        )
        return F.linear(decoded, self.embedding.weight)

    def _embedded(self, subwords: Tensor) -> Tensor:
        """Embeddings with their places, float [batch, subwords, width]: Vaswani et al. 2017, section 3.5."""
        embedded: Tensor = self.embedding(subwords) * math.sqrt(self.width)
        place = torch.arange(subwords.shape[1], device=embedded.device, dtype=embedded.dtype).unsqueeze(1)
        wave = torch.arange(0, self.width, 2, device=embedded.device, dtype=embedded.dtype)
        angle = place * torch.exp(wave * (-math.log(10_000) / self.width))
        return F.dropout(embedded + torch.cat([angle.sin(), angle.cos()], 1), self.dropout, self.training)

    def _summed(self, source: Tensor, target: Tensor) -> Tensor:
        """Nats of all subwords after START."""
        logits = self(source, target[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PADDING, reduction="sum")


def _counted(target: Tensor) -> Tensor:
    """Subwords that are predicted: all but START."""
    return (target[:, 1:] != PADDING).sum()


def _longest(rows: Tensor) -> int:
    return int((rows != PADDING).sum(1).max())


def _alike(batch: TranslationBatch) -> Iterator[TranslationBatch]:
    """The batch in parts of sentences about as long as each other, so that little is filled up."""
    source, target = batch
    for part in torch.split((target != PADDING).sum(1).argsort(stable=True), EVALUATED):
        sources, targets = source[part], target[part]
        yield sources[:, : _longest(sources)], targets[:, : _longest(targets)]
