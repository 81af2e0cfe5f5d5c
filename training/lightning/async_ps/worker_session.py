"""The session of a worker that trains: connects Lightning's hooks with the parameter server."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer
from torchmetrics import Metric
from torchmetrics.metric import jit_distributed_available
from typing_extensions import override

from scalebook.training.engine import Uncopied
from scalebook.training.engine.worker import worker_end
from scalebook.training.lightning.async_ps.applied_step import PushingStep, ScheduleFollower
from scalebook.training.lightning.async_ps.collective_order import Stage
from scalebook.training.lightning.async_ps.collectives import Collectives
from scalebook.training.lightning.async_ps.gradient_hooks import (
    GradientHooks,
    GradientMeans,
    GradientWatch,
    averages_in_backward,
    averages_several,
    hooks_on_gradients,
)
from scalebook.training.lightning.async_ps.refusals import (
    announce_memory,
    changed_gradient,
    refuse_model,
    refuse_optimizers,
    warn_of_averages,
)
from scalebook.training.lightning.async_ps.session import Session, State
from scalebook.training.lightning.async_ps.snapshots import ResumePoint, Snapshots
from scalebook.training.lightning.async_ps.worker_process import FinishedWorker, WorkerParts, WorkerProcess
from scalebook.training.lightning.buffers import Buffers
from scalebook.training.lightning.package import LightningModule, Trainer, TrainerStatus
from scalebook.training.lightning.random_streams import draw_as
from scalebook.training.lightning.worker_role import end_now, ends_here


def share_metrics(module: LightningModule, meeting: Callable[[], Collectives | None]) -> None:
    """Compute the model's torchmetrics over all workers' values, whenever `meeting()` returns collectives to exchange
    them.

    A metric with the user's own `dist_sync_fn` stays unchanged.
    """
    for metric in module.modules():
        if isinstance(metric, Metric) and metric.dist_sync_fn is None:
            metric.dist_sync_fn = _Gather(meeting)
            metric.distributed_available_fn = _Anybody(meeting)


class _Gather(Uncopied):
    """A metric's `dist_sync_fn`; a copy of the metric has none of its own."""

    def __init__(self, meeting: Callable[[], Collectives | None]) -> None:
        self._meeting = meeting

    def __call__(self, state: Tensor, group: Any = None) -> list[Tensor]:
        collectives = self._meeting()
        assert collectives is not None  # torchmetrics asks first whether there is anybody
        return collectives.gather(state)


class _Anybody:
    """A metric's `distributed_available_fn`; a copy of the metric has torchmetrics' own."""

    def __init__(self, meeting: Callable[[], Collectives | None]) -> None:
        self._meeting = meeting

    def __call__(self) -> bool:
        return self._meeting() is not None

    def __reduce__(self) -> tuple[Any, ...]:
        return _usual, ()


def _usual() -> Callable[[], bool]:
    return jit_distributed_available


_BETWEEN_STEPS: Final = "between two steps, in a hook like on_train_batch_end or on_train_batch_start"


class ArrivingWorker(WorkerProcess):
    """The session from the fork to the end of the set-up."""

    @override
    def set_up(self, trainer: Trainer, optimizers: Sequence[Optimizer], device: torch.device) -> Session:
        return WorkerSession(self.parts, optimizers, device)


class WorkerSession(WorkerProcess):
    """A worker that has joined the run: the optimizers' parameters are its replica, and their steps are pushes.

    ValueError for a model or optimizers that cannot be shared, and whatever `WorkerEnd.join` raises.
    """

    trains = True

    def __init__(self, parts: WorkerParts, optimizers: Sequence[Optimizer], device: torch.device) -> None:
        super().__init__(parts)
        self.trainer, self.device, self.trains_on = parts.trainer, device, device
        model, server = self.trainer.lightning_module, parts.arguments.server
        refuse_model(model, self.end.settings)  # what configure_model has made, too
        refuse_optimizers(optimizers)
        synchronous, workers = self.end.settings.rule.synchronous, self.end.workers
        self.buffers = Buffers(model, parts.arguments.buffers, synchronous, self.rank, workers, self.end.rows)
        if self.rank == 0:
            self.buffers.allocate()
        self.joined = self._join(model, optimizers)
        self._share_buffers()
        self.joined.name_parameters(model.named_parameters())
        self.following = ScheduleFollower(self.joined, self.trainer, self.end)
        self.snapshots = Snapshots(
            parts, self.joined, self.buffers, self.following, self.wait_for_others, self.clock_state
        )
        self.resumed = ResumePoint([0] * len(optimizers))
        self._gradients = self._gradient_hooks()
        self._pushing = {
            id(client.optimizer): PushingStep(client.optimizer, client, self._gradients.before_push)
            for client in self.joined.clients
        }
        several = len(optimizers) > 1 and server.rule.synchronous
        self._meets_at_epochs = several or server.meets_after_epochs(workers)
        self.has_left = False
        self._has_finished = False  # it has said, in a meeting, that it will not push any more
        self.data.idle = self._idle
        parts.figures.buffers = self.buffers
        if self.collectives is not None:
            self.collectives.meanwhile = self._while_waiting

    def _join(self, model: Module, optimizers: Sequence[Optimizer]) -> worker_end.JoinedEnd:
        return self.end.join(optimizers, self._announce, model)

    def _gradient_hooks(self) -> GradientHooks:
        """What makes of the hooks that read or change gradients what they are under DDP, if there are any."""
        settings, workers, trainer = self.end.settings, self.end.workers, self.trainer
        hooks = hooks_on_gradients(trainer)
        if not hooks or not averages_several(settings, workers):
            return GradientHooks()
        parameters = [
            p for client in self.joined.clients for group in client.optimizer.param_groups for p in group["params"]
        ]
        if self.collectives is not None and averages_in_backward(settings, workers):
            return GradientMeans(parameters, self.collectives, trainer)
        return GradientWatch(parameters, lambda: changed_gradient(hooks, settings))

    def _share_buffers(self) -> None:
        self.buffers.share(self.end.meetings)

    def _announce(self, need: worker_end.MemoryNeed) -> None:
        """What a run of some size takes: memory, which may be refused."""
        announce_memory(need, self.device)

    @property
    def is_training(self) -> bool:
        """Whether this worker has started to train, and its parameters are still the run's."""
        return self.snapshots.has_begun and not self.has_left

    @property
    def updates_come_between_batches(self) -> bool:
        """Whether this worker's checkpoints have updates beyond those of its last batch."""
        server = self.parts.arguments.server
        return self.end.workers > 1 or server.overlap or server.pushes_rarely

    @property
    def gradients_of_an_update(self) -> int:
        """How many gradients all workers compute for each update."""
        return self.parts.arguments.server.computed(self.end.workers)

    # --- hooks -------------------------------------------------------------------------------------------------------

    @override
    def train_start(self) -> None:
        trainer, meetings = self.trainer, self.end.meetings
        if self.rank == 0 and self.collectives is not None and not self.parts.has_warned:
            warn_of_averages(trainer, self.end.settings, self.end.workers)  # which hooks have made since the fork
        draw_as(self.rank, self.device)
        self.buffers.freeze()
        self.buffers.begin_watching()
        self.data.start(trainer, self.resumed.position)
        self.following.schedule(self.resumed.scheduled)
        self.joined.start()
        self._go_on_from_checkpoint()
        if self.collectives is not None:
            share_metrics(trainer.lightning_module, self._meets_for_metrics)
            self.collectives.places.stage = Stage.TRAINING
            if self.rank > 0 and self.parts.arguments.server.warmup_updates > 0:
                meetings.set_phase(worker_end.Phase.HELD_BACK)
        self.joined.begin()
        meetings.set_phase(worker_end.Phase.TRAINING)
        self.snapshots.drop()
        self.snapshots.has_begun = True
        self.following.count(self.resumed.versions)

    def _go_on_from_checkpoint(self) -> None:
        """When all workers have started."""

    def _meets_for_metrics(self) -> Collectives | None:
        alone = self.collectives is None or self.collectives.places.is_alone(is_metric=True)
        return None if alone else self.collectives

    def show_data(self) -> None:
        """Show hooks the user's own training loader, if it is unchanged."""
        self.data.expose_loaders(self.trainer)

    def begin_epoch(self) -> None:
        """Under a synchronous rule, start an epoch together with all workers: otherwise the last round of an uneven
        epoch would mix two epochs, and with several optimizers steps would come in different orders. If a worker has
        asked to stop, no worker starts: StopIteration, which ends Lightning's loop."""
        if self.collectives is None or not self._meets_at_epochs:
            return
        epochs: Any = self.trainer.fit_loop.epoch_progress.current  # Lightning types it too widely
        if epochs.ready > 1:
            self.collectives.barrier("the start of an epoch")
            if self.end.is_over():
                raise StopIteration

    @override
    def batch_start(self) -> None:
        """Pull the newest version after a validation, and after a round that others have made without this worker. Not
        earlier: what was validated may be saved after it."""
        if self.snapshots.taken is not None:
            self.buffers.show_own()
            self.buffers.begin_watching()
            self._go_on("since its last validation or checkpoint, and did not restore the previous values")
        elif self._has_missed_a_round():
            self._go_on(_BETWEEN_STEPS)
            self.buffers.apply_policy(self.rank, self.following.updates)
        else:
            self.joined.check_foreign_writes(_BETWEEN_STEPS, thorough=False)
        self.following.steps.batch_begins()

    def _go_on(self, moment: str) -> None:
        """From the newest version; `moment` as in `JoinedEnd.check_foreign_writes`."""
        self.joined.pull(moment)
        self.snapshots.drop()
        self.following.moved(self.following.versions)

    def _has_missed_a_round(self) -> bool:
        """Whether, under a synchronous rule, updates may have been made while this worker waited for others between its
        last batch and this one. They need a gradient of the present version."""
        if self.collectives is None or not self.collectives.has_waited:
            return False
        self.collectives.has_waited = False
        return self.end.settings.rule.synchronous

    @override
    @contextmanager
    def accumulating(self) -> Iterator[None]:
        self._gradients.is_accumulating = True
        try:
            yield
        finally:
            self._gradients.is_accumulating = False

    @override
    def before_gradient_hooks(self) -> None:
        self._gradients.before_hooks()

    @override
    def computed(self) -> None:
        self._gradients.computed()
        self.buffers.publish(self._whose_gradient, self.following.updates)

    @property
    def _whose_gradient(self) -> int:
        return self.rank

    @override
    def stepped(self, optimizer: Optimizer) -> worker_end.PushResult | None:
        if (pushing := self._pushing.get(id(optimizer))) is None:
            return None
        pushed = pushing.result()
        trainer, signals = self.trainer, self.end.signals
        if trainer.fit_loop.epoch_loop.batch_progress.is_last_batch:  # hooks of the epoch's end may swap weights
            self.joined.watch_closely()
        self.snapshots.drop()
        self.parts.machine.note_updates(self.rank, self.following.updates)
        self._take_buffers(pushed)
        self.following.pushed(least=(self.end.settings.max_updates or 0) if pushed.is_last else 0)
        if signals.stop:
            trainer.should_stop = True
        else:
            self._say_stop()
        if pushed.was_sent and (pushed.applied or not pushed.is_last):
            self.data.pushed(trainer)
        return pushed

    def _take_buffers(self, pushed: worker_end.PushResult) -> None:
        if pushed.was_sent:
            self.buffers.apply_policy(self.rank, self.following.updates)

    def batch_end(self) -> None:
        """Let the schedules follow the updates of the batch, before other hooks, which may log the rates."""
        self.following.rates()

    def before_validation(self) -> None:
        """Take the snapshot to validate, before all other hooks, which may swap weights."""
        self.snapshots.take("after its last step and before the validation")
        self.buffers.show_mean(self.living())

    def end_epoch(self) -> None:
        """Reduce what the epoch's steps have logged over all workers, before all other hooks, which may read it."""
        if self.collectives is not None:
            self.collectives.sum_up_epoch(self.trainer)

    def end_training(self) -> None:
        """Finish, so that worker 0 has the final parameters, before all other hooks, which may save or change them."""
        self._say_stop()  # it may have been set after this worker's last push
        self.joined.push_rest()
        self.data.stop_taking()
        self.joined.finish()
        if self._ends_with_last_version:
            if not self.snapshots.has_all:
                self.joined.check_foreign_writes("after its last step")
                self.wait_for_others()
                self.snapshots.drop()
            self.snapshots.take()
            self.buffers.show_mean(self.living())

    @override
    def train_end(self) -> None:
        self.end.meetings.set_phase(worker_end.Phase.GONE)
        if self.collectives is not None:
            self.collectives.places.stage = Stage.AFTER

    @override
    def after_training(self) -> Session:
        if self.trainer.state.status == TrainerStatus.RUNNING:  # not after an exception: nobody waits for it then
            self.joined.finish()
            if self._ends_with_last_version:
                self.snapshots.have()  # there is none where Lightning saw nothing to do: no epoch, or no batch
        self._gradients.remove()
        for pushing in self._pushing.values():
            pushing.uninstall()
        self.following.schedules.uninstall()
        self.joined.detach()
        position = self.data.position()
        self.data.restore_loaders(self.trainer)
        self.has_left, self.parts.figures.buffers = True, None
        return FinishedWorker(self.parts, self.snapshots.ours(), position)

    @property
    def _ends_with_last_version(self) -> bool:
        return self.rank == 0 or not self.parts.machine.has_shards

    # --- with the other workers --------------------------------------------------------------------------------------

    def wait_for_others(self) -> None:
        """Wait until all workers have finished and all pushes are applied. First announce this worker's last push,
        since a waiting rule would wait for it."""
        self._say_stop()
        self._finish()
        self.joined.wait_for_others()
        self.snapshots.has_all = True

    def _say_stop(self) -> None:
        """Who is to stop goes on up to `min_steps` and `min_epochs`, and all others with it."""
        if self.trainer.should_stop and self.trainer.fit_loop._can_stop_early:
            self.end.signals.ask_to_stop()

    def _finish(self) -> None:
        """This worker pushes what it has left, and then no more."""
        if self.joined.push_rest():
            self.data.finish_batches()
        self.joined.finish()

    def _idle(self, idle: bool) -> None:
        """Take this worker out of the rule's clocks while it has nothing to compute, or back in."""
        if idle:
            self.end.meetings.set_phase(worker_end.Phase.RESTING)
            self.joined.rest()
        else:
            self.joined.begin()
            self.end.meetings.set_phase(worker_end.Phase.TRAINING)
            self.snapshots.drop()

    def _while_waiting(self) -> None:
        """Called while this worker waits between batches for the others.

        If it has made its last push, it says so: worker 0 may be waiting for that before it validates and comes to the
        meeting.
        """
        if self.has_left or self._has_finished:
            return
        assert self.collectives is not None, "it waits"
        if not self.collectives.places.at_boundary:
            return
        if over := self.end.is_over():
            end_now(self.trainer)
        if over or ends_here(self.trainer):
            self._has_finished = True
            self._finish()

    # --- checkpoints -------------------------------------------------------------------------------------------------

    @override
    def weights(self, default: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        return default() if self.rank != 0 else self.snapshots.weights(default)

    @override
    def optimizer_state(self, optimizer: Optimizer, default: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        return default() if self.rank != 0 else self.snapshots.optimizer_state(optimizer)

    @override
    def checkpoint(self, gathered: dict[str, Any]) -> dict[str, Any]:
        return self.snapshots.checkpoint(gathered) if self.rank == 0 else gathered

    @override
    def resume(self, checkpoint: State, own_state: State, default: Callable[[], None]) -> None:
        self.resumed = self.snapshots.resume(checkpoint, own_state)

    @override
    def version(self, optimizer: Optimizer) -> int:
        """The version of this worker's replica; with `local`, its own steps."""
        return next(client.steps for client in self.joined.clients if client.optimizer is optimizer)

    def clock_state(self) -> dict[str, Any]:
        """The state of the run's clock for a checkpoint, if it has one."""
        return {}
