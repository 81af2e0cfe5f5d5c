"""A worker's second connection, which carries its pushes while the worker computes (host `overlap`)."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from scalebook.training.engine.net.channel import Channel
from scalebook.training.engine.net.handshake import Use
from scalebook.training.engine.rules.settings import Settings
from scalebook.training.engine.worker_clock import T

PUSHES: Final[Use] = "pushes"
OFFERED: Final = ("push", "cursor.mark_done")
"""The calls that may be made over it."""


def has_push_stream(settings: Settings) -> bool:
    """Whether pushes overlap with computing. Not if the rule may make a worker wait: it then computes only from what it
    is given afterwards."""
    return settings.overlap and not settings.rule.waits


class PushStream:
    """Makes calls in one thread, in order of submission."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.is_over = False
        """Whether a push has come after the run's last update; no later push counts."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pushes")
        self._last: Future[None] | None = None

    def open(self, within_s: float) -> None:
        """As `Channel.open`, once the worker has been admitted."""
        self.channel.open(within_s, pulse=False)

    def submit(self, call: Callable[[], T]) -> "Future[T]":
        """Submit a call, to be made after those submitted before."""
        return self._thread.submit(call)

    def mark_done(self, count: int) -> None:
        """Mark the worker's oldest batches as done when the pushes submitted before have arrived."""

        def tell() -> None:
            if not self.is_over:
                self.channel.call("cursor.mark_done", count)

        self._last = self.submit(tell)

    def drain(self) -> None:
        """Wait for all submitted calls."""
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def close(self) -> None:
        self.channel.close()
        self._thread.shutdown(cancel_futures=True)
