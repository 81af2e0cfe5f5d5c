"""A training loader whose batches go to whichever worker comes first, and the counts that Lightning gets.

Lightning asks a loader for its length once and then counts. Here a worker's number of batches is known only at the end
of the epoch, so the loader updates it with each batch: `ceil(batches / workers)` at first, one more than so far when
that is exceeded, and exactly as many as so far when nothing is left. It sets `fit_loop.max_batches` and the `length` of
its fetcher, where Lightning keeps its copies.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from time import sleep
from typing import Any, Final

from torch.utils.data import DataLoader

from scalebook.training.engine import UncopiedIterator
from scalebook.training.engine.rules import Deal
from scalebook.training.engine.worker import worker_end
from scalebook.training.lightning.data.batch_queue import NO_LIMIT, BatchQueue, SimulatedBatchQueue
from scalebook.training.lightning.data.epoch_order import EpochOrder, index_sampler
from scalebook.training.lightning.package import Trainer, _auto_add_worker_init_fn, rank_zero_warn
from scalebook.training.lightning.portable_checkpoint import of_one_process
from scalebook.training.lightning.steps import Interval
from scalebook.training.lightning.worker_role import end_now


class LoaderPosition:
    """The part of a `SharedLoader` that writes its position to a checkpoint, and resumes from it."""

    loader: DataLoader[Any]
    _trainer: Trainer
    _queue: BatchQueue | SimulatedBatchQueue
    _order: EpochOrder
    _workers: int
    _processes: int
    _epoch: int
    _batches: int
    _due: bool
    _marked: dict[str, Any] | None = None
    _was_ended = False
    """Whether the checkpoint that the run goes on from was written after the last batch of worker 0's epoch."""

    def mark(self) -> None:
        """Remember the present position for the checkpoints written before the next push."""
        self._marked = self._position()

    def position(self) -> dict[str, Any]:
        """The batches that are left of started epochs, for a checkpoint."""
        return self._marked or self._position()

    def _position(self) -> dict[str, Any]:
        unfinished = self._queue.unfinished()
        return {
            "left": unfinished,
            "done": self._batches - sum(stop - start for _, start, stop in unfinished.get(self._epoch, [])),
            "whole": self._batches,
            "batches": len(index_sampler(self.loader)),
            "validation_due": self._due,
            "known": self._order.is_known,
            "divided": self._order.divided,
        }

    def state_dict(self) -> dict[str, Any]:
        """Empty: `position` is saved elsewhere. Without this method Lightning would warn that the loader cannot
        resume."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Do nothing: the state of another kind of loader is of no use here."""

    def resume(self, position: Mapping[str, Any] | None) -> None:
        """Resume at the checkpoint's position, if there is one. What is left of earlier epochs is added to the first
        one.

        `position`: that of the SharedLoader that wrote the checkpoint; None for another loader.
        """
        fit, batches = self._trainer.fit_loop, len(index_sampler(self.loader))
        ready = fit.epoch_loop.batch_progress.current.processed if fit.restarting else 0  # type: ignore[attr-defined]
        ended = ready > 0 and fit.epoch_loop.batch_progress.is_last_batch  # the epoch, but for worker 0's validation
        self._was_ended = ended
        if position is None and fit.restarting:
            epoch_batches = self._limit(len(self._order(fit.epoch_progress.current.processed)))  # type: ignore[attr-defined]
            position = of_one_process(self._trainer, epoch_batches, batches, self._order.is_the_same_everywhere)
        if position is None:
            return
        if position["batches"] != batches:
            rank_zero_warn(
                f"data: the checkpoint was written in an epoch of {position['batches']} batches, but now an epoch has "
                f"{batches}. The epoch starts over, so some of its samples are seen twice."
            )
            return
        divided = position.get("divided", 1)
        if position["left"] and divided != self._order.divided:
            rank_zero_warn(
                f"data.init_args.skew: the checkpoint was written in an epoch divided among {divided} workers, but now "
                f"there are {self._order.divided} workers. The epoch starts over, so some of its samples are seen "
                "twice."
            )
            return
        if position["left"] and not position["known"]:
            rank_zero_warn(
                "data: the order of samples before the checkpoint is unknown, because one worker draws this loader's "
                "samples from its own random numbers. In this epoch, some samples may be seen twice, and others not "
                "at all. To resume exactly, use scalebook.training.zoo.shuffle.EpochShuffle as the loader's sampler."
            )
        first = fit.epoch_progress.current.processed  # type: ignore[attr-defined]  # Lightning types the base class
        passed = fit.epoch_loop.restarted_on_train_batch_end and fit.restarted_mid_epoch  # it is counted already
        over = ended and not passed
        self._plan(first + over, position)
        if ready:
            remaining = len(self._queue.plans[first + over])
            fit.max_batches = ready if ended else ready + self._per_worker(remaining)
            self._say_validation(ready, position["validation_due"])

    def _plan(self, first: int, position: Mapping[str, Any]) -> None:
        """The batches of the epochs that the checkpoint found begun; the run goes on with epoch `first`."""
        unfinished = {int(epoch): [[*part] for part in parts] for epoch, parts in position["left"].items()}
        if first not in unfinished:
            unfinished[first] = [[first, 0, self._limit(len(self._order(first)))]]
        if position["known"]:
            self._order.seeded |= {origin for parts in unfinished.values() for origin, _, _ in parts}
        self._queue.plans[first - 1] = []  # a worker that does not validate would begin anew what is over
        for epoch in sorted(unfinished):
            ranges = unfinished[epoch]
            batches = [
                worker_end.TakenBatch(origin, batch) for origin, start, stop in ranges for batch in range(start, stop)
            ]
            self._queue.plans.setdefault(max(epoch, first), []).extend(batches)

    @property
    def played(self) -> SimulatedBatchQueue | None:
        """The batches of simulated workers; None with real ones."""
        return self._queue if isinstance(self._queue, SimulatedBatchQueue) else None

    def _batches_in(self, epoch: int) -> int:
        """All batches of an epoch; of one that a checkpoint has found begun, what was left of it."""
        plan = self._queue.plans.get(epoch)
        return self._limit(len(self._order(epoch))) if plan is None else len(plan)

    def _limit(self, batches: int) -> int:
        limit = self._trainer.limit_train_batches
        assert limit is not None
        return int(batches * limit) if isinstance(limit, float) else min(batches, limit * self._workers)

    def _per_worker(self, batches: int) -> int:
        """Of so many batches, those that this process will have."""
        return -(-batches // self._processes)

    def _say_validation(self, ready: int, due: bool) -> None:
        """Set `val_check_batch` so that Lightning validates after batch `ready` if `due`, and not otherwise.

        Lightning does so after a batch whose number in the epoch is a multiple of `val_check_batch`.
        """
        trainer = self._trainer
        if trainer.check_val_every_n_epoch is not None and trainer._val_check_time_interval is None:  # type: ignore[attr-defined]  # set by its constructor
            assert trainer.val_check_batch is not None
            trainer.val_check_batch = Interval(int(trainer.val_check_batch), ready if due else ready + 1)

    def _count_across_epochs(self) -> None:
        """Where validation counts batches across epochs, Lightning counts all of this process: those of all virtual
        workers."""
        trainer = self._trainer
        interval = getattr(trainer, "val_check_interval", None)  # absent where it is a time
        if self.played is not None and trainer.check_val_every_n_epoch is None and isinstance(interval, int):
            trainer.val_check_batch = interval * self._workers


POLL_S: Final = 0.002


class WorkerLoader:
    """A copy of a user's DataLoader that draws other indices, and passes for the user's own.

    Args:
        indices: What the copy draws its batches from.
        without_processes: It loads in this process, whatever the user's loader does.
    """

    def __init__(self, loader: DataLoader[Any], indices: Iterable[Any], worker: int, without_processes: bool) -> None:
        self.loader = loader
        self._inner = copy.copy(loader)
        inside: list[tuple[str, Any]] = [("_iterator", None)]
        if without_processes:
            inside += [("num_workers", 0), ("prefetch_factor", None), ("persistent_workers", False), ("timeout", 0)]
        inside.append(("sampler" if loader.batch_sampler is None else "batch_sampler", indices))
        for name, value in inside:
            object.__setattr__(self._inner, name, value)  # a DataLoader guards its samplers against mistakes
        _auto_add_worker_init_fn(self._inner, worker)

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # while being copied
            raise AttributeError(name)
        return getattr(self.loader, name)

    @property
    def _iterator(self) -> Any:
        """Persistent loader processes, which Lightning ends by this name."""
        return self._inner._iterator

    @_iterator.setter
    def _iterator(self, value: Any) -> None:
        self._inner._iterator = value

    def __reduce__(self) -> tuple[Any, ...]:
        return copy.copy, (self.loader,)  # a copy of the Trainer has the user's own


class FixedShare(WorkerLoader):
    """One worker's part of one of several training loaders: batches i, i + k, ... of each epoch (`EpochOrder`).

    Lightning combines the parts as it would combine the loaders (`CombinedLoader`). One that ends before the others is
    started again in the same order, as under DDP. If a loader has fewer batches than there are workers, some of them
    train the same batch. The rest of the share of a worker that dies is not trained.
    """

    def __init__(self, loader: DataLoader[Any], trainer: Trainer, worker: int, workers: int) -> None:
        self._trainer, self._workers = trainer, workers
        self._first = worker % max(1, len(index_sampler(loader)))
        self._order = EpochOrder(loader, alone=False)
        super().__init__(loader, _Drawn(self._batches), worker, without_processes=False)

    def __len__(self) -> int:
        return len(range(self._first, len(index_sampler(self.loader)), self._workers))

    def __iter__(self) -> Iterator[Any]:
        self._order.enter(self._epoch())
        return iter(self._inner)

    def _epoch(self) -> int:
        epoch: int = self._trainer.fit_loop.epoch_progress.current.processed  # type: ignore[attr-defined]  # as in `resume`
        return epoch

    def _batches(self) -> Iterator[Any]:
        order = self._order(self._epoch())
        return (order[number] for number in range(self._first, len(order), self._workers))


class _Drawn:
    """Calls `draw` for each iteration."""

    def __init__(self, draw: Callable[[], Iterator[Any]]) -> None:
        self._draw = draw

    def __iter__(self) -> Iterator[Any]:
        return self._draw()


class SharedLoader(LoaderPosition, WorkerLoader):
    """A DataLoader over a data set with a length whose batches go to whichever worker comes first.

    Batch i of epoch e is the same whatever the number of workers (`EpochOrder`), so k workers with batch b see together
    what one worker sees with b. `len` is what a worker has when all are equally fast. `limit_train_batches` as a number
    is per worker, as a fraction of the epoch. `val_check_interval` counts the batches of all workers, divided by their
    number, so that worker 0 validates where it would if all were equally fast, and at the end of the epoch. Across
    epochs (`check_val_every_n_epoch` is None) it counts those of worker 0, or, if one process simulates all workers,
    those of all, divided in the same way.

    The user's loader is copied, and draws its indices from the batches taken: what it prefetches is taken.

    In a process that simulates all workers, `turn` returns whose gradient is due next, `meets` says that they end each
    epoch together, `is_over` that none shall take another batch. That process has all batches (`SimulatedBatchQueue`)
    and loads each when its gradient is due. `idle`: see `SharedData.join`.
    """

    def __init__(
        self,
        loader: DataLoader[Any],
        trainer: Trainer,
        cursor: worker_end.DataCursor,
        worker: int,
        deal: Deal,
        turn: Callable[[], int | None] | None = None,
        meets: bool = False,
        is_over: Callable[[], bool] = lambda: False,
        idle: Callable[[bool], None] = lambda idle: None,
        measures: Callable[[], None] = lambda: None,
    ) -> None:
        """`measures` is called when somebody asks for the length."""
        self._trainer, self._workers, self._is_over = trainer, cursor.workers, is_over
        self._measures = measures
        self._idle, self._is_idle = idle, False
        self._order = EpochOrder(loader, alone=cursor.workers == 1)
        self._queue: BatchQueue | SimulatedBatchQueue
        if turn is None:
            self._queue = BatchQueue(cursor, worker, deal, self._order)
            self._processes = cursor.workers
        else:
            ahead = self._batches_in, self._epochs
            self._queue = SimulatedBatchQueue(cursor, deal, meets, self._order, turn, *ahead, is_over)
            self._processes = 1
        WorkerLoader.__init__(self, loader, self._queue, worker, without_processes=turn is not None)
        self.is_last = False  # the batch delivered last is the worker's last of this epoch
        self._epoch = 0
        self._expected = 0  # batches of this worker in this epoch
        self._before = self._batches = 0  # batches of this epoch: done before the checkpoint, all
        self._validations = 0  # intervals of this epoch that are over
        self._due = False

    def __len__(self) -> int:
        self._measures()
        return self._per_worker(len(index_sampler(self.loader)))

    def for_each_worker(self) -> int:
        """How many batches of an epoch each worker has if all are equally fast."""
        return -(-self._limit(len(index_sampler(self.loader))) // self._workers)

    def __iter__(self) -> Iterator[Any]:
        return UncopiedIterator(self._batches_of_epoch())

    def _batches_of_epoch(self) -> Iterator[Any]:
        """The worker's batches of the epoch. Takes nothing before the first one is asked for."""
        has_entered, empty = self._enter(), True
        # again when the loader inside had come to its end and a dead worker left something
        while has_entered and self._queue.peek():
            if self._is_idle:
                self._is_idle = False
                self._idle(False)
            for batch in iter(self._inner):
                empty = False
                number, self.is_last = self._queue.deliver()
                self._tell_length()
                self._tell_validation(number)
                yield batch
        if empty:
            self._pass_by()

    # --- what the strategy says --------------------------------------------------------------------------------------

    def peek(self) -> bool:
        """Whether there is another batch for this worker; if so, take it."""
        return self._queue.peek()

    def mark_pushed(self) -> None:
        """Mark all batches delivered so far as done: their gradients have been pushed."""
        self._queue.finish()
        self._marked = None

    def reopen(self) -> None:
        """Continue an epoch that was announced as over: a dead worker's batch has been returned."""
        self.is_last = False
        fit = self._trainer.fit_loop
        fit.epoch_loop.batch_progress.is_last_batch = False
        self._say(fit.epoch_loop.batch_progress.current.ready, 0, last=False)
        self._validations -= self._due
        self._say_validation(fit.epoch_loop.batch_progress.current.ready, due=False)

    def succeed(self, before: "SharedLoader") -> None:
        """Take over from `before`, the loader that this worker has used until now."""
        before._queue.finish_all()
        self._queue.succeed(before._queue)  # type: ignore[arg-type]  # of one run, so of one kind

    # --- what Lightning is told --------------------------------------------------------------------------------------

    def _enter(self) -> bool:
        """Begin the epoch. False: the run was over before anybody came there who has a batch of it."""
        self._epoch = self._trainer.fit_loop.epoch_progress.current.processed  # type: ignore[attr-defined]  # as in `resume`
        self._order.enter(self._epoch)
        epoch_batches = self._limit(len(self._order(self._epoch)))
        batches = self._batches_in(self._epoch)
        while not self._queue.enter(self._epoch, batches):
            if self._is_over():
                return False
            if not self._is_idle:
                self._is_idle = True
                self._idle(True)
            sleep(POLL_S)
        self._batches = max(epoch_batches, batches)
        self._before = self._batches - batches
        self._validations = self._before // self._interval()
        self._count_across_epochs()
        self._expected = self._trainer.fit_loop.epoch_loop.batch_progress.current.ready + self._per_worker(batches)
        self.is_last = False
        return True

    def _tell_length(self) -> None:
        self._say(self._trainer.fit_loop.epoch_loop.batch_progress.current.ready + 1, 1, self.is_last)

    def _say(self, ready: int, fetching: int, last: bool) -> None:
        """Tell Lightning how many batches this worker will have in this epoch.

        `ready`: this worker's batches up to the present one. `fetching`: 1 while Lightning is fetching that one, else
        0. `last`: it is the last.
        """
        fit = self._trainer.fit_loop
        assert fit._data_fetcher is not None
        batches = ready if last else max(ready + 1, self._expected)
        fit.max_batches = batches
        fit._data_fetcher.length = fit._data_fetcher.fetched + fetching + batches - ready
        fit._data_fetcher.done = last

    def _interval(self) -> int:
        """Batches of all workers between two validations; where validation goes by time, those of the whole epoch."""
        interval = getattr(self._trainer, "val_check_interval", None)  # absent where it is a time
        share = -(-self._batches // self._workers)
        if isinstance(interval, float):
            interval = max(1, int(share * interval))  # as Lightning has it: no part of an epoch is less than a batch
        worker_interval = interval if isinstance(interval, int) else share
        return max(1, min(worker_interval * self._workers, self._batches))

    def _tell_validation(self, number: int) -> None:
        """Tell Lightning whether to validate after batch `number`: when an interval is over, and at the end of the
        epoch."""
        whole_rounds = -(-(self._before + number + 1) // self._processes) * self._processes
        reached = self._batches if self.is_last else min(whole_rounds, self._batches - 1)
        over = max(self._validations, reached // self._interval())
        self._due, self._validations = over > self._validations, over
        self._say_validation(self._trainer.fit_loop.epoch_loop.batch_progress.current.ready + 1, self._due)

    def _pass_by(self) -> None:
        """Advance the schedulers by an epoch of which this worker got no batch, unless the checkpoint that the run goes
        on from has them so already. No push tells it of the run's end."""
        if self._is_over():
            end_now(self._trainer)
        if self._trainer.fit_loop.restarting and self._was_ended:
            return
        for optimizer in self._trainer.optimizers:
            optimizer._opt_called = True  # type: ignore[attr-defined]  # else a scheduler warns that it comes too early
        self._trainer.fit_loop.epoch_loop.update_lr_schedulers("epoch", update_plateau_schedulers=False)

    def _epochs(self) -> int:
        most = self._trainer.max_epochs
        return NO_LIMIT if most is None else most
