"""The versions that a stand-in has given to its worker: what a push of it may be computed from."""

from collections import deque
from collections.abc import Sequence
from typing import Any

from scalebook.training.ps.applying.shard import Newest
from scalebook.training.ps.worker.client import Client


class Given:
    """Of one optimizer: those given last, and those before, from which the worker computed while its push and what
    followed it were under way. Each with when it was."""

    def __init__(self) -> None:
        self._two: deque[tuple[list[Newest], float]] = deque(maxlen=2)

    def hold(self, client: Client) -> None:
        """The newest are those that the worker is given now."""
        client.hold()
        self._two.append((client.bases, client.pulled))

    def go_back(self, client: Client, bases: list[Any]) -> Sequence[int]:
        """The client's next push is from those given that have these numbers, by shard, if any have. The numbers of
        those that the worker has by now."""
        for held, pulled in self._two:
            if [base.version for base in held] == bases:
                client.bases, client.pulled = held, pulled
        return [base.version for base in self._two[-1][0]] if self._two else bases
