"""What the one model of a virtual run shows while no worker's gradient is due."""

from torch import Tensor

from scalebook.training.ps.optimizer.rebuilding import has_modes, parameters_of
from scalebook.training.ps.worker.one_model import OneModel
from scalebook.training.ps.worker.replica import rounded
from scalebook.training.ps.worker.virtual import VirtualWorkers


class BetweenTurns:
    """The newest version, lent; or a copy of it, which may be written to: that of a snapshot."""

    def __init__(self, workers: VirtualWorkers, one_model: OneModel) -> None:
        self._workers, self._one_model = workers, one_model
        self._put: dict[int, Tensor] = {}
        self._is_copy = False
        self._has_modes = any(has_modes(client.optimizer) for client in workers.joined[0].clients)

    def show_newest(self) -> None:
        """From now on, until somebody's turn."""
        self._put, self._is_copy = self._newest(), False
        self._one_model.put(self._put)

    def show_copy(self) -> None:
        """Of the newest version, instead."""
        self._put = {place: value.clone() for place, value in self._newest().items()}
        self._is_copy = True
        self._one_model.put(self._put)

    def leave(self) -> None:
        """It is somebody's turn."""
        self._put, self._is_copy = {}, False

    def settle(self, moment: str) -> None:
        """`WrittenError`, which says at which `moment`, where somebody has written into the model. Nothing while it is
        somebody's turn."""
        if not self._put:
            return
        newest = self._newest() if self._is_copy else self._put
        written = [
            place
            for place, shown in newest.items()
            if self._one_model.parameters[place].data_ptr() != self._put[place].data_ptr()
            or (self._is_copy and not _same(self._one_model.parameters[place].detach(), shown))
        ]
        if not written:
            return
        if not self._has_modes or not all(self._is_rounded(place, newest[place]) for place in written):
            raise self._workers.joined[0].clients[0].refused(written, moment)
        self.show_newest()

    def _is_rounded(self, place: int, newest: Tensor) -> bool:
        return rounded(self._one_model.parameters[place].detach(), newest)

    def _newest(self) -> dict[int, Tensor]:
        """The parameters of the newest version, by their places in the model's."""
        by_place: dict[int, Tensor] = {}
        first = 0
        for client, section in zip(self._workers.joined[0].clients, self._workers.sections, strict=True):
            seen = client.replica.seen([shard.newest() for shard in section.shards])
            by_place |= {first + place: value for place, value in seen.items()}
            first += len(parameters_of(client.optimizer))
        return by_place


def _same(mine: Tensor, other: Tensor) -> bool:
    return mine.shape == other.shape and bool(((mine == other) | (mine.isnan() & other.isnan())).all())
