"""The way of simulated workers to the shards of one optimizer."""

from collections.abc import Sequence

from torch import Tensor
from typing_extensions import override

from scalebook.training.ps.applying.carrier import Carrier
from scalebook.training.ps.applying.hosts import InlineHost
from scalebook.training.ps.applying.shard import Newest


class SimulatedHost(InlineHost):
    """A worker gives its gradients away when they are computed: from a GPU they are brought at once, since the next
    worker's are put into the same memory."""

    @override
    def carry(self, parameters: Sequence[Tensor]) -> None:
        if not self.section.device.is_host:
            self._bringer = Carrier(self.section.plan, self.section.device, parameters)

    @override
    def collect(self, gradients: list[Tensor | None]) -> list[Tensor | None]:
        return self.bring(gradients)

    @override
    def _brought(self, gradients: list[Tensor | None]) -> list[Tensor | None]:
        """They are here since `collect`."""
        return gradients


class SimulatedServers(SimulatedHost):
    """As if server processes applied what is pushed: a round is applied a moment after the push that completes it, so
    that a worker that need not wait for the update has pulled before. The service has taken its time on the way there
    (`Clock.sends`)."""

    @override
    def pull(self, worker: int) -> list[Newest]:
        newest = super().pull(worker)
        self.help()
        return newest

    @override
    def _contributed(self) -> None:
        """The servers apply it: before anybody goes on, where the rule lets workers wait for it."""
        if self._rule.waits:
            self.help()

    @override
    def _helped(self, worker: int) -> bool:
        return self._admission.has_turn(worker) or super()._helped(worker)
