"""A worker's second connection, over which its pushes go while it computes (host `overlap`)."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from scalebook.training.engine.net.channel import Channel
from scalebook.training.engine.net.handshake import Use
from scalebook.training.engine.rules.settings import Settings
from scalebook.training.engine.worker_clock import T

LANE: Final[Use] = "pushes"
OFFERED: Final = ("push", "cursor.mark_done")
"""What may be asked over it."""


def has_lane(settings: Settings) -> bool:
    """Not where the rule may let a worker wait for its turn: it computes from what it is given then, and not before."""
    return settings.overlap and not settings.rule.waits


class PushStream:
    """One thread makes calls, in the order in which they were begun."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.is_over = False
        """Whether a push has come after the last update that there is to be; nothing after it counts."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lane")
        self._last: Future[None] | None = None

    def open(self, within_s: float) -> None:
        """As `Channel.open`, when the worker has been let in."""
        self.channel.open(within_s, pulse=False)

    def submit(self, call: Callable[[], T]) -> "Future[T]":
        """When all that were begun before are over."""
        return self._thread.submit(call)

    def mark_done(self, count: int) -> None:
        """The worker's oldest claims are done when the pushes that were begun have come."""

        def tell() -> None:
            if not self.is_over:
                self.channel.call("cursor.mark_done", count)

        self._last = self.submit(tell)

    def drain(self) -> None:
        """Wait for all of them."""
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def close(self) -> None:
        self.channel.close()
        self._thread.shutdown(cancel_futures=True)
