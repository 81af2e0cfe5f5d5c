"""The messages of JupyterLab in English and French: real translations, in a package of the extra `examples`."""

import gettext
import importlib.util
from collections import Counter
from pathlib import Path
from typing import Final

from jsonargparse.typing import NonNegativeInt, OpenUnitInterval, PositiveInt
from typing_extensions import override

from scalebook.training.base import extras
from scalebook.training.zoo.data.module import DataError
from scalebook.training.zoo.data.parallel_text import Pair, ParallelText

PACKAGE: Final = "jupyterlab-language-pack-fr-FR"
MODULE: Final = "jupyterlab_language_pack_fr_FR"
CONTEXT: Final = "\x04"
"""Gettext's separator between a message's context and the message."""


class Messages(ParallelText):
    """Translate messages of a program from English to French: 3,198 messages of JupyterLab and its extensions.

    They come with the package `jupyterlab-language-pack-fr-FR` (BSD-3-Clause) and have 21,000 French words: menus,
    questions, errors, descriptions of settings. Messages that differ only in case and punctuation are in the same part.
    Both languages share their subwords (byte-pair encoding), which are learned from the training part.

    Args:
        batch_size: Sentences per batch of one worker.
        limit: Train on only this many messages, taken from the start. Default: all.
        val_fraction: Share of the messages held out for validation.
        split_seed: Seed of the split of messages, independent of the run's seed.
        vocabulary: Largest number of subwords.
        longest: Skip messages that have more subwords than this in either language.
    """

    needs = ("sentencepiece", MODULE)

    def __init__(
        self,
        batch_size: PositiveInt = 32,
        limit: PositiveInt | None = None,
        val_fraction: OpenUnitInterval = 0.1,
        split_seed: NonNegativeInt = 0,
        vocabulary: PositiveInt = 2_000,
        longest: PositiveInt = 24,
    ) -> None:
        super().__init__(batch_size, limit, val_fraction, None, split_seed, vocabulary, longest)

    @override
    def pairs(self) -> list[Pair]:
        return messages(catalogues())


def catalogues() -> list[Path]:
    """The package's files of messages, sorted by name; nothing of the package is imported."""
    spec = importlib.util.find_spec(MODULE)
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    files = sorted(path for folder in folders for path in Path(folder).rglob("*.mo"))
    if not files:
        raise DataError(
            f"The package {PACKAGE} is not installed, or contains no messages. Run {extras.install(extras.EXAMPLES)}."
        )
    return files


def messages(files: list[Path]) -> list[Pair]:
    """Each message once, in order of first appearance, with its most frequent translation.

    Of a message with a plural only the singular counts. The context that tells equal messages apart is left out.
    """
    translations: dict[str, Counter[str]] = {}
    for file in files:
        for message, translation in _catalogue(file).items():
            text, form = message if isinstance(message, tuple) else (message, 0)
            text = text.rpartition(CONTEXT)[2]
            if text.strip() and translation.strip() and form == 0:
                translations.setdefault(text, Counter())[translation] += 1
    return [Pair(text, counts.most_common(1)[0][0]) for text, counts in translations.items()]


def _catalogue(file: Path) -> dict[str | tuple[str, int], str]:
    """The messages of a compiled catalogue; those with a plural by message and form."""
    try:
        with file.open("rb") as content:
            read = gettext.GNUTranslations(content)
    except (OSError, ValueError, LookupError) as error:
        raise DataError(f"{file} is damaged ({error}). Run pip install --force-reinstall {PACKAGE}.") from error
    catalogue: dict[str | tuple[str, int], str] = vars(read)["_catalog"]
    return catalogue
