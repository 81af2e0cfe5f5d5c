"""Shares the training data between asynchronous workers: each takes the next batch that no other has taken yet.

How a strategy uses `SharedData` (one for each fit):

- `__init__` in a worker, or in a server process; there `join` does not follow
- `join` in the worker; `process` in `process_dataloader` while training; `start` in `on_train_start`
- `expose_loaders` before the hooks of callbacks and models in `on_train_start` and `on_train_epoch_start`
- `pushed` after each push; `mark` when parameters are copied for a checkpoint, which is given the `position`
- `stop_taking` in `on_train_end`, `restore_loaders` in `teardown`
- `is_distributed` must be False: Lightning would put a sampler of its own into the loader
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, islice
from time import monotonic, sleep
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_unflatten
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from typing_extensions import override

from scalebook.training.base import ConfigError, validation_interval
from scalebook.training.engine import Uncopied, UncopiedIterator
from scalebook.training.engine.rules import Deal
from scalebook.training.engine.worker import worker_end
from scalebook.training.lightning.data.batch_queue import SimulatedWork
from scalebook.training.lightning.data.common_draws import CommonDraws, order_alike
from scalebook.training.lightning.data.shared_loader import POLL_S, FixedShare, SharedLoader, WorkerLoader
from scalebook.training.lightning.package import (
    Callback,
    LightningModule,
    Trainer,
    _auto_add_worker_init_fn,
    _DataLoaderIterDataFetcher,
    _worker_check,
    has_iterable_dataset,
    rank_zero_info,
    sized_len,
)
from scalebook.training.zoo import SkewedSampler

_NOTHING: Final = object()
SKEW: Final = "data.init_args.skew"
NUMBERED: Final = f"Remove {SKEW}, or set a fixed number of workers."
UNDIVIDED: Final = f"Remove {SKEW}, or set trainer.use_distributed_sampler to true."


class Stream:
    """One worker's part of a loader without a known length.

    The workers compare their first batches. If these are equal, the stream is divided in turn: worker i takes batches
    i, i + k, ... and skips the others. All make the same stream: what it draws from the process's random numbers is
    drawn from `CommonDraws`. If they differ, the data set divides itself, as for DDP (by the trainer's `global_rank`,
    or RANK and WORLD_SIZE in the environment), and each worker takes all of its own. `meetings` is None if nothing is
    compared (a server process). The share of a worker that dies is lost for the run.
    """

    def __init__(
        self, loader: Iterable[Any], worker: int, workers: int, meetings: worker_end.MessageExchange | None
    ) -> None:
        self.loader, self._worker, self._workers, self._meetings = loader, worker, workers, meetings
        self._divides_itself = False
        self._draws = CommonDraws()
        self._begun: Iterator[Any] | None = None  # from its first batch on, which has been looked at

    def __iter__(self) -> Iterator[Any]:
        self._look()
        batches, self._begun = self._begun, None
        if self._divides_itself:
            return iter(self.loader) if batches is None else batches  # a loader's iterator may have no truth
        if batches is None:
            with self._draws.drawn():
                batches = iter(self.loader)
        return UncopiedIterator(islice(self._draws.through(batches), self._worker, None, self._workers))

    def __len__(self) -> int:
        """The number of this worker's batches; TypeError if unknown, or if only others have any: Lightning would stop
        at 0."""
        self._look()
        length = sized_len(self.loader)
        if length is None:
            raise TypeError("a stream without a length")
        if length == 0 and not self._divides_itself:  # nobody has any
            return 0
        batches = length if self._divides_itself else -(-(length - self._worker) // self._workers)
        if batches <= 0:
            raise TypeError("a stream without a length")
        return batches

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # while being copied
            raise AttributeError(name)
        return getattr(self.loader, name)

    def _look(self) -> None:
        """Draw the first batch, once, and ask whether the other workers' first batch is the same."""
        meetings, self._meetings = self._meetings, None
        if meetings is None:
            return
        with self._draws.drawn():
            batches = iter(self.loader)
            first = next(batches, _NOTHING)
        self._begun = batches if first is _NOTHING else chain([first], batches)
        self._divides_itself = meetings.streams_differ(digest(first))
        if self._divides_itself:
            rank_zero_info(
                "The first batches of the workers' training streams differ. So the data set seems to divide its "
                "samples among the workers itself, and each worker uses every batch of its stream. If the data set "
                "only shuffles, use the same shuffling seed in every worker."
            )


def digest(batch: Any) -> int:
    """A positive int64 hash of all tensors, arrays, numbers and texts in a batch, in order."""
    content = hashlib.blake2b(digest_size=7)
    for leaf in tree_leaves(batch):
        if isinstance(leaf, Tensor):
            content.update(f"{leaf.dtype}{list(leaf.shape)}".encode())
            content.update(leaf.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        elif isinstance(leaf, np.ndarray):
            content.update(leaf.tobytes())
        elif isinstance(leaf, str | bytes | int | float | bool | None):
            content.update(repr(leaf).encode())
        else:
            content.update(type(leaf).__qualname__.encode())
    return int.from_bytes(content.digest(), "big") + 1


MOST_POLL_S: Final = 0.05
"""The longest interval between checks whether a death has returned batches, s; it grows up to this."""


class SharedData(Uncopied):
    """One worker's access to the data of the run.

    A loader with a length is shared batch by batch (`SharedLoader`), each of several in turn (`FixedShare`), streams in
    turn (`Stream`). Data that the user has divided
    (`use_distributed_sampler: false`, a DistributedSampler, streams that differ between workers) stays as it is.

    Args:
        cursor: Which worker has which batches; shared by all workers of the run.
        deal: Which batches of an epoch belong to a worker. All of them do where a loader's sampler gives each worker
            its own samples (`SkewedSampler`).
        turn: In a process that simulates all workers, returns whose gradient is due next; `work` is then theirs.
        is_elastic: Workers may join and leave, so nothing is divided by their number.
        meets: In a process that simulates all workers, none begins an epoch before the others have ended theirs.
    """

    def __init__(
        self,
        cursor: worker_end.DataCursor,
        deal: Deal,
        meetings: worker_end.MessageExchange | None = None,
        turn: Callable[[], int | None] | None = None,
        is_elastic: bool = False,
        meets: bool = False,
    ) -> None:
        self.cursor, self.deal, self._turn, self._is_elastic = cursor, deal, turn, is_elastic
        self._meets = meets
        self.workers = cursor.workers if turn is None else 1
        self.work = SimulatedWork()
        self._meetings = meetings
        self.worker, self._joined = 0, False  # not, in a server process
        self.deadline_s = 600.0
        self.idle: Callable[[bool], None] = lambda idle: None
        """`idle(True)` takes this worker out of the rule's clocks while it waits for what a death may bring back,
        `idle(False)` in again if something came."""
        self._stopped: Callable[[], bool] = lambda: False
        self._loader: SharedLoader | None = None
        self._read: list[SharedLoader] = []  # since Lightning has last asked one for its length
        self._several = False  # training loaders, each divided for itself

    def join(
        self,
        worker: int,
        deadline_s: float,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """Attach to a worker. `stopped` returns True when the run ends and nothing need be waited for."""
        self.worker, self.deadline_s, self._stopped = worker, deadline_s, stopped
        self._joined = True

    def process(self, trainer: Trainer, dataloader: Any) -> Any:
        """The loader that replaces one of the user's training loaders."""
        divided = isinstance(getattr(dataloader, "sampler", None), DistributedSampler)
        divided |= not trainer._accelerator_connector.use_distributed_sampler
        stream = not isinstance(dataloader, DataLoader) or has_iterable_dataset(dataloader)
        stream |= sized_len(dataloader) is None
        deal = self.deal
        if isinstance(sampler := getattr(dataloader, "sampler", None), SkewedSampler):
            self._refuse_skew(divided)
            sampler.workers, deal = self.cursor.workers, Deal.IN_TURNS
        if divided or stream:
            if self._turn is not None:
                raise _cannot_be_dealt("virtual workers take turns with the batches of one loader", "host: inline")
            if self._is_elastic:
                raise _cannot_be_dealt(
                    "nodes that join or leave take over batches from each other", "a fixed number of workers"
                )
        if divided:
            if self.workers > 1:
                order_alike(dataloader, self.worker)
            return dataloader
        if stream:
            if self.workers == 1:
                return dataloader
            _worker_check(trainer, dataloader, "train_dataloader")  # Lightning's, which looks at DataLoaders alone
            _auto_add_worker_init_fn(dataloader, 0)  # all make the same stream
            compare = self._joined and self._meetings is not None
            return Stream(dataloader, self.worker, self.workers, self._meetings if compare else None)
        _worker_check(trainer, dataloader, "train_dataloader")  # as above
        if self._several:  # loaded again: trainer.reload_dataloaders_every_n_epochs
            return dataloader if self.workers == 1 else FixedShare(dataloader, trainer, self.worker, self.workers)
        before, self._loader = (
            self._loader,
            SharedLoader(
                dataloader,
                trainer,
                self.cursor,
                self.worker,
                deal,
                self._turn,
                self._meets,
                self._stopped,
                self.idle,
                partial(self._all_are_read, trainer),
            ),
        )
        self._read.append(self._loader)
        self.work.queue = self._loader.played
        if before is not None:  # trainer.reload_dataloaders_every_n_epochs
            self._loader.succeed(before)
        return self._loader

    def _refuse_skew(self, divided: bool) -> None:
        if self._is_elastic:
            raise ConfigError(SKEW, "gives each worker its own samples, but nodes may join or leave", NUMBERED)
        if divided and self.cursor.workers > 1:
            raise ConfigError(SKEW, "is set, but trainer.use_distributed_sampler is false", UNDIVIDED)

    def _all_are_read(self, trainer: Trainer) -> None:
        """Called when Lightning asks for the first length, which it does when it has all training loaders. Of several
        the epoch is as long as their combination, which Lightning and `start` look at."""
        read, self._read = self._read, []
        if len(read) == 1:
            self._refuse_rare_validation(trainer, read[0].for_each_worker())

    def _refuse_rare_validation(self, trainer: Trainer, batches: int) -> None:
        """ConfigError where an epoch is over before a validation is due, as Lightning has it; before training."""
        interval = getattr(trainer, "val_check_interval", None)  # absent where it is a time
        validates = trainer.check_val_every_n_epoch is not None and trainer.limit_val_batches != 0
        if validates and isinstance(interval, int) and interval > batches > 0:
            raise validation_interval.too_rare(interval, batches, self.cursor.workers)

    def start(self, trainer: Trainer, position: Mapping[str, Any] | None = None) -> None:
        """Refuse loaders that cannot be shared, with a ValueError; resume the checkpoint's position.

        `position`: the value of the method `position` when the checkpoint was written.
        """
        fit, shared = trainer.fit_loop, self._loader
        if shared is None or fit._combined_loader is None:
            return
        several = len(fit._combined_loader.flattened) > 1
        if not several and not isinstance(fit._data_fetcher, _DataLoaderIterDataFetcher):
            shared.resume(position)
            if not trainer.lightning_module.automatic_optimization:
                trainer.callbacks.append(_AfterEachBatch(self))  # type: ignore[attr-defined]  # made by a connector
            return
        self._refuse_fetching(several)
        self._several, self._loader = several, None
        combined = fit._combined_loader
        combined.flattened = [self._fixed_share(trainer, loader) for loader in combined.flattened]
        assert fit._data_fetcher is not None
        iter(fit._data_fetcher)
        if self.workers > 1:
            self._count_again(trainer)

    def _refuse_fetching(self, several: bool) -> None:
        """ValueError for loaders that Lightning does not read batch by batch, where these cannot be divided."""
        problem, fix = "a training_step that takes `dataloader_iter`", "`batch` instead, or one worker"
        if several:
            problem = "several training loaders"
            fix = "a fixed number of workers" if self._turn is None else "real workers (host: inline)"
        if self._turn is not None or (self.workers > 1 and (not several or self._is_elastic)):
            raise ValueError(f"data: {problem} cannot be shared by {self.cursor.workers} workers. Use {fix}.")

    def _fixed_share(self, trainer: Trainer, loader: Any) -> Any:
        if not isinstance(loader, SharedLoader):
            return loader
        return loader.loader if self.workers == 1 else FixedShare(loader.loader, trainer, self.worker, self.workers)

    def _count_again(self, trainer: Trainer) -> None:
        """Set what Lightning has computed from the loaders' lengths, before it knew this worker's part of them."""
        fit = trainer.fit_loop
        batches = sized_len(fit._combined_loader)
        fit.max_batches = float("inf") if batches is None else batches
        interval = getattr(trainer, "val_check_interval", None)  # absent where it is a time
        if batches is not None and isinstance(interval, float):
            trainer.val_check_batch = max(1, int(batches * interval))

    def expose_loaders(self, trainer: Trainer) -> None:
        """Make `trainer.train_dataloader` the user's own loader if there is one worker, as without AsyncPS."""
        combined = trainer.fit_loop._combined_loader
        if self.workers == 1 and self._loader is not None and combined is not None:
            combined._iterables = tree_unflatten([_own(loader) for loader in combined.flattened], combined._spec)

    def restore_loaders(self, trainer: Trainer) -> None:
        """Give the user's own loaders back to Lightning, after training."""
        fit, combined = trainer.fit_loop, trainer.fit_loop._combined_loader
        if combined is not None and any(isinstance(loader, WorkerLoader) for loader in combined.flattened):
            if fit._data_fetcher is not None:
                fit._data_fetcher.teardown()  # ends loader processes
                fit._data_fetcher = None
            combined.flattened = [_own(loader) for loader in combined.flattened]

    def pushed(self, trainer: Trainer) -> None:
        """Note that the gradients of all batches fetched so far have been pushed.

        At the end of the last epoch it waits for the other workers (except worker 0, whose death ends the run), whose
        deaths may return batches. `TimeoutError` if they neither take a batch nor push for `deadline_s`. Under manual
        optimization all this happens after the batch.
        """
        if trainer.lightning_module.automatic_optimization:
            self.finish_batch(trainer)

    def finish_batch(self, trainer: Trainer) -> None:
        """See `pushed`."""
        loader = self._loader
        if loader is None:
            return
        loader.mark_pushed()
        last_epoch = trainer.fit_loop.epoch_progress.current.ready == trainer.max_epochs
        if loader.is_last and last_epoch and self.workers > 1 and not self._stopped():
            self.idle(True)
            if self._wait_for_more(loader):
                self.idle(False)
                loader.reopen()

    def finish_batches(self) -> None:
        """Note that all batches fetched so far have been pushed, and this worker takes no more."""
        if self._loader is not None:
            self._loader.mark_pushed()

    def mark(self) -> None:
        """Remember the present data position, when parameters are copied, for a checkpoint before the next push."""
        if self._loader is not None:
            self._loader.mark()

    def position(self) -> dict[str, Any] | None:
        """What is left of started epochs, for a checkpoint; None if no loader is shared."""
        return None if self._loader is None else self._loader.position()

    def stop_taking(self) -> None:
        """Take no more batches. This worker's batches, and its share of those not yet taken, go to the others."""
        self.finish_batches()
        if self._turn is None:
            self.cursor.mark_dead(self.worker)

    def _wait_for_more(self, loader: "SharedLoader") -> bool:
        besides = {0, self.worker}
        seen, until, pause = self.cursor.progress(), monotonic() + self.deadline_s, POLL_S
        while not loader.peek():
            if self._stopped() or not self.cursor.outstanding(besides):
                return loader.peek()  # asked before the last death was known
            if (progress := self.cursor.progress()) != seen:
                seen, until = progress, monotonic() + self.deadline_s
            if monotonic() > until:
                raise TimeoutError(
                    f"worker {self.worker} waited {self.deadline_s:g} s at the end of the data, but the other workers "
                    "neither took nor pushed a batch"
                )
            sleep(pause)
            pause = min(1.1 * pause, MOST_POLL_S)
        return True


def _own(loader: Any) -> Any:
    """The user's loader."""
    return loader.loader if isinstance(loader, WorkerLoader) else loader


class _AfterEachBatch(Callback):
    """Under manual optimization a batch has as many pushes as its training_step likes; it is done when that is over."""

    def __init__(self, data: SharedData) -> None:
        self._data = data

    @override
    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        self._data.finish_batch(trainer)


def _cannot_be_dealt(who: str, otherwise: str) -> ValueError:
    return ValueError(
        f"data: {who}, but this data has no length or is already sharded. Use a DataLoader over a data set with a "
        f"length and use_distributed_sampler: true, or use {otherwise}."
    )
