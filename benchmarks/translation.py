"""The translator on JupyterLab's messages, English to French, beside the English itself.

    python -m benchmarks.translation [--epochs 12] [--every 4] [--seeds 3]

Validated on the messages of the default split: the loss in nats per subword, and chrF over all of their translations.
The baseline of chrF is the copy, the English sentence taken as its own translation: names, placeholders and words that
both languages share. A copy has no probabilities, so the loss is compared with that of the subwords' frequencies in the
training part. Takes about two minutes for each seed.
"""

import argparse
from typing import Final

import torch
from lightning.pytorch import seed_everything
from torch import Tensor
from torch.optim import Adam, Optimizer
from torchmetrics.functional.text import chrf_score

from benchmarks.machine import machine
from benchmarks.plain_training import be_quiet, mean, plain_trainer
from scalebook.training.tracking.names import VAL_CHRF, VAL_LOSS
from scalebook.training.zoo.data import Messages
from scalebook.training.zoo.data.parallel_text import TranslationBatch
from scalebook.training.zoo.data.subwords import PADDING
from scalebook.training.zoo.models import Translator

LEARNING_RATE: Final = 0.002
ALL: Final = 100_000
"""Translate all messages."""


class _Translator(Translator):
    """Stores the figures of each validation: epoch, chrF, loss."""

    def __init__(self) -> None:
        super().__init__(translated=ALL)
        self.found: list[tuple[int, float, float]] = []

    def configure_optimizers(self) -> Optimizer:
        return Adam(self.parameters(), lr=LEARNING_RATE)

    def on_validation_epoch_end(self) -> None:
        figures = self.trainer.callback_metrics
        epoch = 0 if self.trainer.sanity_checking else self.current_epoch + 1
        self.found.append((epoch, figures[VAL_CHRF].item(), figures[VAL_LOSS].item()))


def trained(data: Messages, epochs: int, every: int, seed: int) -> list[tuple[int, float, float]]:
    """Epoch, chrF and loss: untrained, and after every `every` epochs."""
    seed_everything(seed, verbose=False)
    model = _Translator()
    trainer = plain_trainer(max_epochs=epochs, check_val_every_n_epoch=every)
    trainer.fit(model, datamodule=data)
    return model.found


def copied(data: Messages, batch: TranslationBatch) -> float:
    """chrF of the English sentences as their own translations."""
    sources, targets = map(data.subwords.decode, batch)
    score = chrf_score(sources, [[one] for one in targets], n_word_order=0)
    assert isinstance(score, Tensor)
    return score.item()


def by_frequency(data: Messages, validated: Tensor) -> float:
    """Nats per subword if each has its share in the training part; one is added for subwords that it lacks."""
    counts = torch.ones(len(data.subwords))
    for _, target in data.train_dataloader():
        counts += target[:, 1:].flatten().bincount(minlength=len(counts))
    counts[PADDING] = 0
    targets = validated[:, 1:][validated[:, 1:] != PADDING]
    return -(counts / counts.sum()).log()[targets].mean().item()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--every", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    be_quiet()
    data = Messages()
    data.prepare_data()
    data.setup("fit")
    (batch,) = data.val_dataloader()
    read = sum(len(source) for source, _ in data.train_dataloader())
    print(f"{machine()}. {read:,} messages train, {len(batch[0]):,} validate.\n")
    print("| | chrF | loss, nats per subword |\n|---|---:|---:|", flush=True)
    print(f"| the English itself | {copied(data, batch):.3f} | |")
    print(f"| the subwords' frequencies | | {by_frequency(data, batch[1]):.2f} |", flush=True)
    by_seed = [trained(data, arguments.epochs, arguments.every, seed) for seed in range(1, arguments.seeds + 1)]
    for same in zip(*by_seed, strict=True):
        (epoch, *_), *_ = same
        _, scores, losses = zip(*same, strict=True)
        name = f"{epoch} epochs" if epoch else "untrained"
        print(f"| the translator, {name} | {mean(scores, 3)} | {mean(losses, 2)} |")


if __name__ == "__main__":
    main()
