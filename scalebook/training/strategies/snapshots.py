"""What worker 0 validates and saves: parameters, optimizer state, statistics and data position of one moment."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from torch import Tensor
from torch.optim import Optimizer
from typing_extensions import override

from scalebook.training.ps.worker.end import JoinedEnd, Snapshot, WorkerEnd
from scalebook.training.strategies.buffers import Buffers
from scalebook.training.strategies.independent import IndependentWorkers
from scalebook.training.strategies.portable import for_any_trainer, for_workers, position_in
from scalebook.training.strategies.schedules import Schedules
from scalebook.training.strategies.sharing import SharedData
from scalebook.training.strategies.state_file import StateFile, all_but_weights
from scalebook.training.strategies.steps import Steps
from scalebook.training.strategies.worker_role import ends_here

_BETWEEN_STEPS: Final = "between two steps, in a hook like on_train_batch_end or on_train_batch_start"


class Snapshots(IndependentWorkers):
    """Worker 0 validates and writes checkpoints from a consistent snapshot while the others go on.

    A snapshot holds from the moment it is taken until the next batch. The last one of a run waits until it includes
    every update, and holds after the fit too. A subclass sets the attributes below once training is set up.
    """

    _end: WorkerEnd | None = None  # in a worker, of a run of several processes
    _data: SharedData | None = None  # there, and in a server process
    _joined: JoinedEnd | None = None
    _schedules: Schedules | None = None
    _buffers: Buffers | None = None
    _steps: Steps | None = None
    _kept: StateFile | None = None  # of the last fit; also in the process that asked for it
    _snapshot: Snapshot | None = None  # of the version that worker 0's replica has
    _ours: Mapping[str, Any] = {}  # what the last checkpoint that was loaded says for us alone
    _resumed: list[int] | None = None  # versions of the checkpoint that the run goes on from
    _resumed_steps: list[int] | None = (
        None  # there, by which learning rates are scheduled, where that is another number
    )
    _position: dict[str, Any] | None = None  # in the training data, of that checkpoint or of the last one written
    _has_begun = False  # this worker's training: until then it has the first version, and what was loaded into it
    _has_all = False  # the snapshot is the run's last, of which nobody trains on

    @property
    def _own_end(self) -> WorkerEnd:
        assert self._end is not None
        return self._end

    @property
    def _own_data(self) -> SharedData:
        assert self._data is not None
        return self._data

    def _begin_anew(self) -> None:
        """Forget an earlier fit."""
        self._snapshot = self._resumed = self._resumed_steps = self._position = None
        self._has_begun = self._has_all = False

    def _leave_data(self) -> None:
        """After training: the loaders are the user's own, and a checkpoint has the position that they have come to."""
        if self._data is not None:
            self._position = self._data.position()
            self._data.leave(self._trainer)

    def before_validation(self) -> None:
        """Take what is validated: first of all hooks, so that others may swap weights in theirs."""
        if self._joined is not None:
            self.take_snapshot("after its last step and before the validation")
            self._show_mean()

    @override
    def validation_step(self, *args: Any, **kwargs: Any) -> Any:
        """One sign of life for each batch, for workers that a rule lets wait meanwhile: their deadline begins anew."""
        output = super().validation_step(*args, **kwargs)
        if self._end is not None:
            self._end.sign_of_life()
        return output

    @override
    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Go on from the newest version after a validation, and where others have made a round without this worker.
        Not earlier: what was validated may be saved after it."""
        if self._joined is None or self._buffers is None:
            return
        if self._snapshot is not None:
            self._buffers.show_own()
            self._buffers.note()
            self._go_on("since its last validation or checkpoint, and did not put back what was there")
        elif self._has_missed_a_round():
            self._go_on(_BETWEEN_STEPS)
            self._buffers.take(self._worker, sum(self._versions()))
        else:
            self._joined.settle(_BETWEEN_STEPS, thorough=False)

    def _go_on(self, moment: str) -> None:
        """From the newest version; `moment` as in `JoinedEnd.settle`."""
        assert self._joined is not None
        self._joined.pull(moment)
        self._snapshot = None
        self._at_step(self._versions())
        self._follow_schedules()

    def _has_missed_a_round(self) -> bool:
        """Whether, under a synchronous rule, updates may have been made while this worker waited for others between its
        last batch and this one. They need a gradient of the present version."""
        if self._collectives is None or not self._collectives.has_waited or self._end is None:
            return False
        self._collectives.has_waited = False
        return self._end.settings.rule.synchronous

    def take_snapshot(self, moment: str = "after its last step and before a checkpoint") -> Snapshot:
        """Parameters, optimizer states and data position of now, which are what is validated, named and saved.

        `moment`: when, for the error that names who wrote into parameters before.
        """
        assert self._joined is not None
        if self._has_all and self._snapshot is not None:
            return self._snapshot
        if not self._trainer.sanity_checking and ends_here(self._trainer):
            self._wait_for_others()
        self._own_data.mark()
        if self._has_begun:
            self._joined.settle(moment)
        self._snapshot = self._joined.snapshot(renew=self._has_begun)
        self._at_step(self._snapshot.versions)
        self._follow_schedules()
        if self._has_all:
            self._take_last_buffers()
        return self._snapshot

    def is_training(self) -> bool:
        """Whether this worker has begun, and its parameters are still the run's."""
        return self._has_begun and self._joined is not None

    def have_snapshot(self) -> Snapshot:
        """The snapshot taken since the last batch, for a validation say; else a new one. What was validated is what is
        saved."""
        return self._snapshot or self.take_snapshot()

    def _wait_for_others(self) -> None:
        """Wait until all workers have finished and all pushes are applied. First say that this one pushes no more: a
        waiting rule would wait for it."""
        assert self._joined is not None
        if self._trainer.should_stop:
            self._own_end.signals.ask_to_stop()
        self._finish()
        self._joined.wait_for_others()
        self._has_all = True

    def _finish(self) -> None:
        """This worker pushes what it has left, and then no more."""
        assert self._joined is not None
        if self._joined.push_rest():
            self._own_data.done()
        self._joined.finish()

    def _follow_schedules(self) -> None:
        """Bring the learning rates to the version of this worker's replica, or to its own steps."""
        if self._schedules is not None and self._joined is not None:
            versions = {id(client.optimizer): client.steps for client in self._joined.clients}
            self._schedules.follow(versions)

    def _versions(self) -> list[int]:
        """Of each optimizer, in this worker's replica."""
        assert self._joined is not None
        return self._joined.versions

    def _at_step(self, versions: Sequence[int]) -> None:
        if self._steps is not None:
            self._steps.moved(versions)

    def _show_mean(self) -> None:
        if self._buffers is not None and self._end is not None:
            self._buffers.show_mean(self._end.living())

    def _take_last_buffers(self) -> None:
        """What others have made of theirs in their last steps. Virtual workers may go on some day, and worker 0 with
        its own."""
        if self._buffers is not None and self._end is not None and self._end.settings.host != "virtual":
            self._buffers.take(self._worker, sum(self._versions()))

    @contextmanager
    def _as_validated(self) -> Iterator[None]:
        """Meanwhile the model has the normalisation statistics that a validation would use."""
        assert self._buffers is not None
        before = self._buffers.shows_mean
        self._show_mean()
        try:
            yield
        finally:
            if not before:
                self._buffers.show_own()

    # --- checkpoints ---------------------------------------------------------------------------------------------

    @override
    def lightning_module_state_dict(self) -> dict[str, Any]:
        if self._joined is None or self._worker != 0:
            return super().lightning_module_state_dict()
        self.have_snapshot()
        with self._as_validated():
            return {name: _own_storage(value) for name, value in super().lightning_module_state_dict().items()}

    @override
    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        if self._joined is None or self._worker != 0:
            own: dict[str, Any] = super().optimizer_state(optimizer)
            return own
        snapshot = self.have_snapshot()
        number = next(i for i, known in enumerate(self.optimizers) if known is optimizer)
        states = snapshot.optimizers[number]["state"]
        mine = {key: _own_storages(state) for key, state in states.items()}
        more = {} if type(optimizer).state_dict is Optimizer.state_dict else optimizer.state_dict()
        return {**more, "state": mine, "param_groups": self._joined.clients[number].groups()}

    @override
    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any | None = None) -> None:
        if self._snapshot is not None:
            checkpoint = self._portable(checkpoint)
        elif self._kept is not None and "optimizer_states" in checkpoint:  # after the fit
            kept = self._kept.read()
            callbacks = {**checkpoint["callbacks"], **kept["callbacks"]}  # on_save_checkpoint may have added to them
            checkpoint = {**checkpoint, **kept, "callbacks": callbacks}
        super().save_checkpoint(checkpoint, filepath, storage_options)
        if self._end is not None and self.is_global_zero:
            self._end.signals.note_checkpoint(filepath)

    def keep(self) -> None:
        """Save all but the weights of a checkpoint that may be written after the fit; once all hooks have run."""
        if self._kept is not None and self._snapshot is not None:
            self._kept.write(self._portable(all_but_weights(self._trainer)))

    def _portable(self, checkpoint: dict[str, Any]) -> dict[str, Any]:
        assert self._snapshot is not None
        ours = {"versions": self._snapshot.versions, "samples": self._samples(), **self._clock_state()}
        if self._joined is not None and (residuals := self._joined.residuals()):
            ours["residuals"] = residuals
        if self._snapshot.local:
            ours["local"] = self._snapshot.local
        step = {"global_step": sum(self._snapshot.versions)}  # Lightning asked before there was a snapshot
        if self._joined is not None and self._data is not None:
            self._position = self._data.position()
        return for_any_trainer({**checkpoint, **step}, self.num_processes, ours, self._position)

    @override
    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        checkpoint, self._ours = for_workers(super().load_checkpoint(checkpoint_path, weights_only))
        return checkpoint

    @override
    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Every worker takes the hyper-parameters; worker 0 puts state and versions back into the shards.

        A checkpoint of another strategy says only how many steps all optimizers together have made. One without any
        optimizer's state leaves them as they are. ValueError if it has others than the model.
        """
        states = list(checkpoint["optimizer_states"])
        if states and len(states) != len(self.optimizers):
            raise ValueError(
                f"ckpt_path: the checkpoint has the state of {len(states)} optimizers, and the model has "
                f"{len(self.optimizers)}. Use the model's configure_optimizers of then, or save with weights_only=True."
            )
        local = self._end is not None and self._end.settings.local.steps  # then each worker's state is its own
        for optimizer, state in zip(self.optimizers, states, strict=False):
            is_own = type(optimizer).load_state_dict is not Optimizer.load_state_dict  # it may look for what it keeps
            kept = copy.deepcopy(state["state"]) if local or is_own else {}
            optimizer.load_state_dict({**state, "state": kept})
        steps = checkpoint.get("global_step", 0)
        self._resumed = self._ours.get("versions", _divided(steps, len(self.optimizers)))
        self._position = position_in(self._ours)
        if local:
            kept = self._ours.get("local", [])
            states = [{"state": one["outer"]} for one in kept] or [{"state": {}} for _ in self.optimizers]
            self._resumed_steps = [one["steps"] for one in kept] or self._resumed
        if self._joined is not None:
            if self._worker == 0:
                states = states or [optimizer.state_dict() for optimizer in self.optimizers]
                residuals = self._ours.get("residuals", ())
                self._joined.restore(self._resumed, states, residuals, self._resumed_steps or ())
                self._restore_samples(self._ours.get("samples", 0))
            self._joined.show_state()

    def _clock_state(self) -> dict[str, Any]:
        """What a checkpoint keeps of the run's clock, if that does not go by itself."""
        return {}

    def _samples(self) -> int:
        """Samples that all workers together have computed on."""
        raise NotImplementedError

    def _restore_samples(self, samples: int) -> None:
        """Count the samples from before the checkpoint too."""
        raise NotImplementedError


def _divided(steps: int, optimizers: int) -> list[int]:
    """The updates of each optimizer, in nearly equal parts, from the one number in another strategy's checkpoint."""
    return [steps // optimizers + (number < steps % optimizers) for number in range(optimizers)]


def _own_storages(state: Any) -> Any:
    """Of what is kept for a parameter, by name, or for none."""
    return {name: _own_storage(value) for name, value in state.items()} if isinstance(state, dict) else state


def _own_storage(value: Any) -> Any:
    """The tensor itself, or a copy if it is a view into larger memory: `torch.save` writes whole storages."""
    if isinstance(value, Tensor) and value.untyped_storage().nbytes() != value.nbytes:
        return value.clone()
    return value
