"""What a run in the foreground prints, copied into its log."""

import io
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from typing_extensions import override

TALKERS: Final = ("lightning.pytorch", "lightning.fabric", "lightning")
"""Loggers whose handlers keep the standard error that was current at their import."""


class Tee(io.TextIOBase):
    """Writes to a stream and, except progress bars, to a log. Works in forked processes too (it appends)."""

    def __init__(self, stream: IO[str], log: IO[str]) -> None:
        self.stream, self.log = stream, log

    @override
    def write(self, text: str) -> int:
        if "\r" not in text:
            self.log.write(text)
        return self.stream.write(text)

    @override
    def flush(self) -> None:
        if not self.log.closed:  # as when this object is collected after the run
            self.log.flush()
        self.stream.flush()

    @override
    def isatty(self) -> bool:
        return self.stream.isatty()

    @override
    def fileno(self) -> int:
        return self.stream.fileno()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def copied_to(path: Path) -> Iterator[None]:
    """Copy the standard output and error of this process and its forks to the end of `path`."""
    out, err = sys.stdout, sys.stderr
    handlers = [handler for name in TALKERS for handler in logging.getLogger(name).handlers]
    streams = [(handler, handler.stream) for handler in handlers if isinstance(handler, logging.StreamHandler)]
    with path.open("a", encoding="utf-8", buffering=1) as log:
        sys.stdout, sys.stderr = Tee(out, log), Tee(err, log)
        for handler, _ in streams:
            handler.stream = sys.stderr
        try:
            yield
        finally:
            sys.stdout, sys.stderr = out, err
            for handler, stream in streams:
                handler.stream = stream
