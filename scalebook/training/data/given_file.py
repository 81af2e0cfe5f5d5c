"""A data set's file that the user names: one on this machine, or an address with what must arrive from there."""

import gzip
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Final, cast
from urllib.parse import urlsplit

from scalebook.training.data.download import RemoteFile, cache_folder, fetch
from scalebook.training.data.errors import DataError
from scalebook.training.errors import ConfigError

SHA256: Final = re.compile("[0-9a-f]{64}", re.IGNORECASE)
TEXTS: Final = (".txt", ".tsv")
MOST_BYTES: Final = 1 << 36
"""Of a file in a zip archive; a larger one is not unpacked."""


@dataclass(frozen=True)
class GivenFile:
    """`file` on this machine, or `url` with the `sha256` and the `size` in bytes of what is there.

    What is downloaded is kept in the user's cache, by its checksum; nothing is taken that has another.
    """

    file: str | None
    url: str | None
    sha256: str | None
    size: int | None

    def __post_init__(self) -> None:
        if self.url is None:
            if self.file is None:
                raise ConfigError("data.init_args.file", "is empty", "Name a file, or give url, sha256 and size.")
            return
        if self.file is not None:
            raise ConfigError("data.init_args.url", "is set together with a file", "Write one of the two.")
        if urlsplit(self.url).scheme not in ("http", "https"):
            raise ConfigError("data.init_args.url", f"is {self.url!r}", "Begin it with https:// or http://.")
        if self.size is None:
            raise ConfigError("data.init_args.size", "is empty", "Write the bytes of the file that the url leads to.")
        if self.sha256 is None or not SHA256.fullmatch(self.sha256):
            raise ConfigError(
                "data.init_args.sha256",
                "is empty" if self.sha256 is None else "is not 64 hexadecimal digits",
                "Write the checksum of a copy of the file that you trust: sha256sum FILE.",
            )

    @property
    def path(self) -> Path:
        """Where the file is, or will be."""
        if self.file is not None:
            return Path(self.file).expanduser()
        return cache_folder() / self._remote.name

    @property
    def _remote(self) -> RemoteFile:
        assert self.url is not None
        assert self.sha256 is not None
        assert self.size is not None
        sha256 = self.sha256.lower()
        name = PurePosixPath(urlsplit(self.url).path).name or "data"
        remedy = "name a file of your own in data.init_args.file"
        return RemoteFile(f"{sha256[:16]}-{name}", self.size, sha256, (self.url,), remedy)

    def download(self) -> None:
        """Fetch what is not there yet; DataError where that fails."""
        if self.url is not None:
            fetch([self._remote], cache_folder())

    @contextmanager
    def lines(self) -> Iterator[Iterator[bytes]]:
        """The lines of the text: plain, compressed by gzip, or the largest .txt or .tsv of a zip archive.

        DataError where the file is missing, or damaged as far as it is read.
        """
        try:
            with _opened(self.path) as text:
                yield iter(text)
        except (OSError, EOFError, zipfile.BadZipFile) as error:
            raise DataError(f"{self.path} cannot be read ({error}). Name another in data.init_args.file.") from error


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    with path.open("rb") as file:
        start = file.read(4)
        file.seek(0)
        if start[:2] == b"\x1f\x8b":
            with gzip.open(file) as text:
                yield cast("IO[bytes]", text)
        elif start == b"PK\x03\x04":
            with zipfile.ZipFile(file) as archive, archive.open(_largest(archive, path)) as text:
                yield text
        else:
            yield file


def _largest(archive: zipfile.ZipFile, path: Path) -> zipfile.ZipInfo:
    texts = [entry for entry in archive.infolist() if entry.filename.endswith(TEXTS) and entry.file_size <= MOST_BYTES]
    if not texts:
        raise DataError(f"{path} has no file that ends with {' or '.join(TEXTS)}. Name another in data.init_args.file.")
    return max(texts, key=lambda entry: entry.file_size)
