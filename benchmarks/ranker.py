"""The ranker on Python's docstrings, beside TF-IDF.

    python -m benchmarks.ranker [--epochs 5] [--seeds 3]

Which function of the standard library does a sentence describe? Validated on the modules of the default split, by the
mean reciprocal rank of the right document among all of them, and by the share of queries that have it among the first
ten. The baseline is scikit-learn's TfidfVectorizer over the same words, its frequencies of documents counted in both
parts, cosine similarity. Takes about a minute for each seed.
"""

import argparse
import sysconfig
from pathlib import Path
from typing import Final, NamedTuple

import torch
from lightning.pytorch import seed_everything
from sklearn.feature_extraction.text import TfidfVectorizer
from torch import Tensor
from torch.optim import Adam, Optimizer

from benchmarks.machine import machine
from benchmarks.plain_training import be_quiet, mean, plain_trainer
from scalebook.training.tracking.names import VAL_MRR, VAL_RECALL_10
from scalebook.training.zoo.data import Docstrings
from scalebook.training.zoo.data.cache import cache_folder
from scalebook.training.zoo.data.ngrams import words
from scalebook.training.zoo.data.standard_library import corpus, described
from scalebook.training.zoo.models import Ranker
from scalebook.training.zoo.models.ranker import AMONG_FIRST, ranks

BATCH: Final = 64
LEARNING_RATE: Final = 0.01


class Ranked(NamedTuple):
    """Mean reciprocal rank, and the share of queries whose document is among the first ten."""

    mrr: float
    recall: float


class _Ranker(Ranker):
    def configure_optimizers(self) -> Optimizer:
        return Adam(self.parameters(), lr=LEARNING_RATE)


def of_scores(scores: Tensor) -> Ranked:
    """The figures of scores [queries, documents]."""
    place = ranks(scores)
    return Ranked(place.reciprocal().mean().item(), (place <= AMONG_FIRST).float().mean().item())


def tf_idf(data: Docstrings) -> Ranked:
    """The baseline, on the validation part."""
    train, validation = data.split(corpus(cache_folder()))
    pairs = list(described(Path(sysconfig.get_path("stdlib"))))
    documents = {place: f"{pairs[place].name} {pairs[place].body}" for place in (*train, *validation)}
    vectors = TfidfVectorizer(tokenizer=words, lowercase=False, token_pattern=None, sublinear_tf=True)
    vectors.fit(documents.values())
    queries = vectors.transform([pairs[place].summary for place in validation])
    return of_scores(torch.from_numpy((queries @ vectors.transform(documents[p] for p in validation).T).toarray()))


def trained(data: Docstrings, epochs: int, seed: int) -> Ranked:
    """The ranker's figures after so many epochs; 0: untrained."""
    seed_everything(seed, verbose=False)
    model = _Ranker()
    trainer = plain_trainer(max_epochs=epochs)
    if epochs:
        trainer.fit(model, datamodule=data)
    else:
        trainer.validate(model, datamodule=data, verbose=False)
    figures = trainer.callback_metrics
    return Ranked(figures[VAL_MRR].item(), figures[VAL_RECALL_10].item())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    be_quiet()
    data = Docstrings(batch_size=BATCH)
    data.prepare_data()
    data.setup("fit")
    train, validation = data.split(corpus(cache_folder()))
    print(f"{machine()}. {len(train):,} pairs train, {len(validation):,} validate.\n")
    print("| | MRR | recall at 10 |\n|---|---:|---:|")
    base = tf_idf(data)
    print(f"| TF-IDF | {base.mrr:.3f} | {base.recall:.3f} |")
    for epochs in (0, arguments.epochs):
        scores = [trained(data, epochs, seed) for seed in range(1, arguments.seeds + 1)]
        figures = " | ".join(mean(figure, 3) for figure in zip(*scores, strict=True))
        print(f"| the ranker, {f'{epochs} epochs' if epochs else 'untrained'} | {figures} |")


if __name__ == "__main__":
    main()
