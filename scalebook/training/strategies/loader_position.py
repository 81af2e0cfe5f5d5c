"""Where a shared loader is in its data, in the terms of a checkpoint: what is left of the epochs begun."""

from collections.abc import Mapping
from typing import Any

from torch.utils.data import DataLoader

from scalebook.training.ps.worker.end import Claim
from scalebook.training.strategies.claims import Claims
from scalebook.training.strategies.epoch_order import EpochOrder, index_sampler
from scalebook.training.strategies.lightning import Trainer, rank_zero_warn
from scalebook.training.strategies.played_claims import PlayedClaims
from scalebook.training.strategies.portable import of_one_process
from scalebook.training.strategies.steps import Interval


class LoaderPosition:
    """The part of a `SharedLoader` that a checkpoint hears of, and that goes on from one."""

    loader: DataLoader[Any]
    _trainer: Trainer
    _claims: Claims | PlayedClaims
    _order: EpochOrder
    _workers: int
    _processes: int
    _epoch: int
    _batches: int
    _due: bool
    _marked: dict[str, Any] | None = None

    def mark(self) -> None:
        """Remember the present position for the checkpoints written before the next push."""
        self._marked = self._position()

    def position(self) -> dict[str, Any]:
        """The batches that are left of the epochs begun, to be kept in a checkpoint."""
        return self._marked or self._position()

    def _position(self) -> dict[str, Any]:
        left = self._claims.unfinished()
        return {
            "left": left,
            "done": self._batches - sum(stop - start for _, start, stop in left.get(self._epoch, [])),
            "whole": self._batches,
            "batches": len(index_sampler(self.loader)),
            "validation_due": self._due,
            "known": self._order.is_known,
        }

    def state_dict(self) -> dict[str, Any]:
        """Nothing, for the `position` has a place of its own. Lightning would warn of a loader that cannot resume."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """What a loader of another kind has left is of no use here."""

    def resume(self, position: Mapping[str, Any] | None) -> None:
        """Go on where the checkpoint was, if there is one. What is left of earlier epochs joins the first one.

        `position`: of the loader that wrote it, if that was one of ours.
        """
        fit, batches = self._trainer.fit_loop, len(index_sampler(self.loader))
        if position is None and fit.restarting:
            whole = self._limit(len(self._order(fit.epoch_progress.current.processed)))  # type: ignore[attr-defined]
            position = of_one_process(self._trainer, whole, batches, self._order.is_the_same_everywhere)
        if position is None:
            return
        if position["batches"] != batches:
            rank_zero_warn(
                f"data: the checkpoint was written in an epoch of {position['batches']} batches; now it has "
                f"{batches}. The epoch starts over, so some of its samples are seen twice."
            )
            return
        if position["left"] and not position["known"]:
            rank_zero_warn(
                "data: one worker draws this loader's samples from its own random numbers, so their order before the "
                "checkpoint is not known: some samples of its epoch may be seen twice, others not at all. Use "
                "scalebook.training.shuffle.EpochShuffle as its sampler to resume exactly."
            )
        first = fit.epoch_progress.current.processed  # type: ignore[attr-defined]  # Lightning types the base class
        ready = fit.epoch_loop.batch_progress.current.processed if fit.restarting else 0  # type: ignore[attr-defined]
        ended = ready > 0 and fit.epoch_loop.batch_progress.is_last_batch  # the epoch, but for worker 0's validation
        passed = fit.epoch_loop.restarted_on_train_batch_end and fit.restarted_mid_epoch  # it is counted already
        over = ended and not passed
        self._plan(first + over, position)
        if ready:
            left = len(self._claims.plans[first + over])
            fit.max_batches = ready if ended else ready + self._per_worker(left)
            self._say_validation(ready, position["validation_due"])

    def _plan(self, first: int, position: Mapping[str, Any]) -> None:
        """The batches of the epochs that the checkpoint found begun; the run goes on with epoch `first`."""
        left = {int(epoch): [[*part] for part in parts] for epoch, parts in position["left"].items()}
        if first not in left:
            left[first] = [[first, 0, self._limit(len(self._order(first)))]]
        if position["known"]:
            self._order.seeded |= {origin for parts in left.values() for origin, _, _ in parts}
        self._claims.plans[first - 1] = []  # a worker that does not validate would begin anew what is over
        for epoch in sorted(left):
            claims = [Claim(origin, batch) for origin, start, stop in left[epoch] for batch in range(start, stop)]
            self._claims.plans.setdefault(max(epoch, first), []).extend(claims)

    @property
    def played(self) -> PlayedClaims | None:
        """The claims of virtual workers."""
        return self._claims if isinstance(self._claims, PlayedClaims) else None

    def _batches_in(self, epoch: int) -> int:
        """All batches of an epoch; of one that a checkpoint has found begun, what was left of it."""
        plan = self._claims.plans.get(epoch)
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
