"""What follows the versions of a worker's replica: the Trainer's counts of steps, and the learning rates."""

from collections.abc import Sequence

from scalebook.training.ps.worker.end import JoinedEnd, Signals
from scalebook.training.strategies.lightning import Trainer
from scalebook.training.strategies.schedules import Schedules
from scalebook.training.strategies.steps import Steps


class Following:
    """Of one worker, from the moment it has joined; `schedule` and `count` once its training begins. `workers`: of the
    run."""

    def __init__(self, joined: JoinedEnd, trainer: Trainer, worker: int, workers: int, signals: Signals) -> None:
        self._joined, self._trainer, self._workers = joined, trainer, workers
        self.steps = Steps(trainer, alone=workers == 1)
        self.schedules = Schedules(trainer.lightning_module, worker, signals)

    @property
    def versions(self) -> list[int]:
        """Of each optimizer, in this worker's replica."""
        return self._joined.versions

    @property
    def updates(self) -> int:
        """Of all optimizers together."""
        return sum(self._joined.versions)

    def schedule(self, steps: Sequence[int]) -> None:
        """Where several workers train: rates follow updates from now on. `steps`: by optimizer, what they have been
        scheduled by so far."""
        trainer = self._trainer
        if self._workers > 1 and trainer.lightning_module.automatic_optimization:
            optimizers = [client.optimizer for client in self._joined.clients]
            by_id = {id(optimizer): made for optimizer, made in zip(optimizers, steps, strict=True)}
            self.schedules.start(trainer.strategy.lr_scheduler_configs, by_id)
            trainer.strategy.lr_scheduler_configs = self.schedules.mine()

    def count(self, before: Sequence[int]) -> None:
        """The Trainer's steps are updates from now on; `before`: versions of the checkpoint that the run goes on
        from."""
        self.steps.start(self.versions, before)
        self.rates()

    def rates(self) -> None:
        """Bring the learning rates to the version of this worker's replica, or to its own steps."""
        self.schedules.follow({id(client.optimizer): client.steps for client in self._joined.clients})

    def moved(self, versions: Sequence[int]) -> None:
        """After a pull without a push."""
        self.steps.moved(versions)
        self.rates()

    def pushed(self, least: int) -> None:
        """After a push; `least`: updates that have been made for certain."""
        self.rates()
        self.steps.pushed(self.versions, least)
