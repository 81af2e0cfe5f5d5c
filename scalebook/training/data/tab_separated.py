"""A public corpus of translations, as text with tabs."""

import itertools

from jsonargparse.typing import NonNegativeInt, OpenUnitInterval, PositiveInt
from typing_extensions import override

from scalebook.training.data.broken_lines import BrokenLines
from scalebook.training.data.given_file import GivenFile
from scalebook.training.data.parallel_text import Pair, ParallelText


class TabSeparated(ParallelText):
    """Translate from a text file of your own: a sentence, a tab and its translation on each line.

    Further columns, such as whose sentence it is, are left out: so files of Tatoeba and ManyThings can be read as they
    are. UTF-8, plain, compressed by gzip, or the largest .txt or .tsv of a zip archive. Lines without two columns are
    counted, named and left out.

    Args:
        file: A file on this machine. Or set `url`, `sha256` and `size`.
        url: Address to download it from, once, into the user's cache.
        sha256: SHA-256 of the file; a download with another one is refused.
        size: Its size in bytes.
        reverse: Translate the second column into the first.
        batch_size: Sentences per batch of one worker.
        lines: Read this many lines only, the first ones. Default: all.
        limit: Train on this many sentences only, the first ones. Default: all.
        val_fraction: Share of the sentences held out for validation.
        val_limit: Validate on at most this many of them.
        split_seed: Seed of the split of sentences; independent of the run's seed.
        vocabulary: Largest number of subwords, both languages together.
        longest: Skip sentences with more subwords in either language.
    """

    def __init__(
        self,
        file: str | None = None,
        url: str | None = None,
        sha256: str | None = None,
        size: PositiveInt | None = None,
        reverse: bool = False,
        batch_size: PositiveInt = 32,
        lines: PositiveInt | None = None,
        limit: PositiveInt | None = None,
        val_fraction: OpenUnitInterval = 0.1,
        val_limit: PositiveInt = 500,
        split_seed: NonNegativeInt = 0,
        vocabulary: PositiveInt = 2_000,
        longest: PositiveInt = 48,
    ) -> None:
        super().__init__(batch_size, limit, val_fraction, val_limit, split_seed, vocabulary, longest)
        self.given, self.reverse, self.lines = GivenFile(file, url, sha256, size), reverse, lines

    @override
    def prepare_data(self) -> None:
        """Download the file where it is not there yet, and learn the subwords."""
        self.given.download()
        super().prepare_data()

    @override
    def pairs(self) -> list[Pair]:
        broken = BrokenLines(self.given.path, "a sentence, a tab and its translation")
        found, read = [], 0
        with self.given.lines() as lines:
            for read, line in enumerate(itertools.islice(lines, self.lines), 1):
                pair = _pair(line)
                if pair is None:
                    broken.add(read)
                else:
                    found.append(Pair(*reversed(pair)) if self.reverse else pair)
        broken.tell(read)
        return found


def _pair(line: bytes) -> Pair | None:
    try:
        columns = line.decode("utf-8-sig").rstrip("\r\n").split("\t")
    except UnicodeDecodeError:
        return None
    if len(columns) < 2 or not columns[0].strip() or not columns[1].strip():
        return None
    return Pair(columns[0], columns[1])
