"""Running statistics of normalisation layers, of which every worker has its own."""

from collections.abc import Iterator, Sequence
from typing import Final, Literal

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.modules.batchnorm import _NormBase

from scalebook.training.ps.worker.end import Rows

BatchNormPolicy = Literal["per_worker", "averaged", "frozen"]
_NAMES: Final = ("running_mean", "running_var")


class RunningStatistics:
    """The running means and variances of one worker's batch normalisation, and the means of all workers'.

    Parameters are shared, running statistics are not: each worker's follow its own batches, at the versions that it
    had. What is validated and saved is one model, so it needs one set of them. The policies:

    - `averaged`, the default: the mean of the workers' running means and variances. Each is an unbiased moving average
      over the same data, so their mean has the same expectation as one worker's, and up to `workers` times less noise;
      it costs nothing in training. (The variance between the workers' means, which a pooled variance would add, is of
      the order of that noise.)
    - `per_worker`: worker 0's own, as under DDP without sync_batchnorm. A share of the data decides about the model.
    - `frozen`: nobody updates them, and training normalises by them too, as in evaluation. For models that come with
      statistics of their own; with a new model they are 0 and 1.

    The layers' buffers become views of `own` (flat); on a CPU that is the worker's row of the shared memory itself, so
    publishing is free; elsewhere `publish` copies. Another worker may write its row while it is read: each number is
    whole, and a mean of numbers from two moments a step apart is as good as any.
    """

    def __init__(self, model: Module, policy: BatchNormPolicy, worker: int, workers: int) -> None:
        self._policy, self._worker, self._workers = policy, worker, workers
        self._layers = [module for module in model.modules() if isinstance(module, _NormBase) and _tracks(module)]
        kinds = {(buffer.dtype, buffer.device) for buffer in self._buffers()}
        if len(kinds) > 1 and self._shares:
            raise ValueError(
                "model: its normalisation layers have running statistics of several types or on several devices, which "
                "cannot be averaged. Make them alike, or set trainer.strategy.init_args.batch_norm to per_worker."
            )
        self._own = torch.cat([b.detach().flatten() for b in self._buffers()]) if self._shares else torch.empty(0)
        self._rows: Tensor | None = None  # shared [workers, numbers + 1]; the last is 1 once the worker has trained
        self._kept: Tensor | None = None  # this worker's own, while it shows the mean

    @property
    def _shares(self) -> bool:
        return bool(self._layers) and self._workers > 1 and self._policy == "averaged"

    def allocate(self, rows: Rows) -> None:
        """By worker 0, before the others share."""
        if self._shares:
            rows.allocate(self._row_bytes())

    def share(self, rows: Rows) -> None:
        """Put this worker's into the shared memory, once its model is where it will be trained."""
        if not self._shares:
            return
        self._rows = rows.map(self._row_bytes()).view(self._own.dtype)
        mine = self._rows[self._worker]
        mine[-1] = 0
        mine[:-1].copy_(self._own)
        if self._own.device.type == "cpu":
            self._own = mine[:-1]
        self._point_to(self._own)

    def has(self, buffer: Tensor) -> bool:
        """Whether this is one of the statistics that are shared."""
        return self._shares and any(buffer is shared for shared in self._buffers())

    def be(self, worker: int) -> None:
        """Have the statistics of `worker`, of those that one process plays."""
        if self._rows is None:
            return
        self.show_own()
        if worker != self._worker:
            self._own, self._worker = self._rows[worker, :-1].to(self._own.device), worker
            self._point_to(self._own)

    def spread(self) -> None:
        """All workers, which one process plays, begin with the statistics of now."""
        if self._rows is not None:
            self._rows[:, :-1] = self._own

    def rows(self) -> Tensor | None:
        """All workers' statistics, a row each, to be kept; None where they are not shared."""
        return None if self._rows is None else self._rows.clone()

    def load(self, rows: Tensor | None) -> None:
        """All workers', which one process plays, as `rows` was."""
        if self._rows is not None and rows is not None:
            self._rows.copy_(rows)

    def publish(self) -> None:
        """Show the others this worker's statistics; with every push."""
        if self._rows is not None:
            if self._own.device.type != "cpu":
                self._rows[self._worker, :-1].copy_(self._own)
            self._rows[self._worker, -1] = 1

    def freeze(self) -> None:
        """Under the policy `frozen`: the layers behave in training as in evaluation. After `model.train()`."""
        if self._policy == "frozen":
            for layer in self._layers:
                layer.eval()

    def show_mean(self, living: Sequence[int]) -> None:
        """Put the mean over those of the `living` workers that have trained into the layers of this worker.

        Its own statistics are kept, and nobody else sees a change. Nothing happens where nothing is shared.
        """
        if self._rows is None or self._kept is not None:
            return
        trained = [worker for worker in living if self._rows[worker, -1] == 1]
        if trained:
            self._kept = self._own
            self._point_to(self._rows[trained, :-1].mean(0).to(self._own.device))

    @property
    def shows_mean(self) -> bool:
        """Whether the layers have the mean at present."""
        return self._kept is not None

    def show_own(self) -> None:
        """Go on with this worker's own."""
        if self._kept is not None:
            self._point_to(self._kept)
            self._kept = None

    def detach(self) -> None:
        """Give the layers memory of their own again, with what they show now."""
        if self._rows is not None:
            for buffer in self._buffers():
                buffer.data = buffer.detach().clone()
            self._rows = self._kept = None

    def _point_to(self, flat: Tensor) -> None:
        at = 0
        for buffer in self._buffers():
            buffer.data = flat[at : at + buffer.numel()].view_as(buffer)
            at += buffer.numel()

    def _buffers(self) -> Iterator[Tensor]:
        for layer in self._layers:
            for name in _NAMES:
                yield getattr(layer, name)

    def _row_bytes(self) -> int:
        return (self._own.numel() + 1) * self._own.element_size()


def _tracks(layer: _NormBase) -> bool:
    """Whether the layer keeps running statistics."""
    return layer.track_running_stats and layer.running_mean is not None
