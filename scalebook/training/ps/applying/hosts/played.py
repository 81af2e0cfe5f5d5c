"""Virtual workers' shards, as if server processes applied what is pushed."""

from scalebook.training.ps.applying.hosts.inline import InlineHost
from scalebook.training.ps.applying.shard import Newest


class PlayedServers(InlineHost):
    """A round is applied a moment after the push that completes it: a worker that need not wait for the update has
    pulled before. Its service has taken its time on the way there (`Clock.sends`)."""

    def pull(self, worker: int) -> list[Newest]:
        newest = super().pull(worker)
        self.help()
        return newest

    def _contributed(self) -> None:
        """The servers apply it: before anybody goes on, where the rule lets workers wait for it."""
        if self._rule.waits:
            self.help()

    def _helped(self, worker: int) -> bool:
        return self._admission.has_turn(worker) or super()._helped(worker)
