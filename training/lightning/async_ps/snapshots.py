"""What worker 0 validates and saves: parameters, optimizer state, statistics and data position of one moment."""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from scalebook.training.engine.worker.worker_end import JoinedEnd, Snapshot
from scalebook.training.lightning.async_ps.schedules import ScheduleFollower
from scalebook.training.lightning.async_ps.worker_process import WorkerParts
from scalebook.training.lightning.buffers import Buffers
from scalebook.training.lightning.portable_checkpoint import for_any_trainer, position_in
from scalebook.training.lightning.worker_role import ends_here


@dataclass(frozen=True)
class ResumePoint:
    """Where a run goes on from: the checkpoint's versions by optimizer, by which the steps are counted; the numbers by
    which rates are scheduled, where workers make steps of their own; its place in the data, where it has one."""

    versions: list[int]
    steps: list[int] | None = None
    position: dict[str, Any] | None = None
    clock_s: float | None = None
    """Of a virtual run."""

    @property
    def scheduled(self) -> list[int]:
        """What rates have been scheduled by so far."""
        return self.steps or self.versions


class Snapshots:
    """Worker 0 validates and writes checkpoints from a consistent snapshot while the others go on.

    A snapshot holds from the moment it is taken until the next batch. The last one of a run waits until it includes
    every update, and holds after the fit too.

    Args:
        wait_for_others: Returns when all updates of the run are made; sets `has_all`.
        clock_state: What a checkpoint keeps of the run's clock, if that does not go by itself.
    """

    def __init__(
        self,
        parts: WorkerParts,
        joined: JoinedEnd,
        buffers: Buffers,
        following: ScheduleFollower,
        wait_for_others: Callable[[], None],
        clock_state: Callable[[], dict[str, Any]],
    ) -> None:
        self._parts, self._joined, self._buffers, self._following = parts, joined, buffers, following
        self._wait_for_others, self._clock_state = wait_for_others, clock_state
        self.taken: Snapshot | None = None
        """Of the version that worker 0's replica has."""
        self.has_begun = False
        """Whether this worker has begun to train: until then it has the first version, and what was loaded into it."""
        self.has_all = False
        """Whether what is taken is the run's last, of which nobody trains on."""

    def drop(self) -> None:
        """Training goes on: the next is another."""
        self.taken = None

    def have(self) -> Snapshot:
        """The one taken since the last batch, for a validation say; else a new one. What was validated is what is
        saved."""
        return self.taken or self.take()

    def take(self, moment: str = "after its last step and before a checkpoint") -> Snapshot:
        """Parameters, optimizer states and data position of now, which are what is validated, named and saved.

        `moment`: when, for the error that names who wrote into parameters before.
        """
        trainer = self._parts.trainer
        if self.has_all and self.taken is not None:
            return self.taken
        if not trainer.sanity_checking and ends_here(trainer):
            self._wait_for_others()
        self._parts.data.mark()
        if self.has_begun:
            self._joined.check_foreign_writes(moment)
        self.taken = self._joined.snapshot(renew=self.has_begun)
        self._following.moved(self.taken.versions)
        if self.has_all and not self._parts.figures.is_simulated:
            # What others have made of theirs in their last steps. Virtual workers may go on some day, and worker 0 with
            # its own.
            self._buffers.apply_policy(self._parts.rank, self._following.updates)
        return self.taken

    @contextmanager
    def _as_validated(self) -> Iterator[None]:
        """Meanwhile the model has the normalisation statistics that a validation would use."""
        before = self._buffers.shows_mean
        self._buffers.show_mean(self._parts.end.living())
        try:
            yield
        finally:
            if not before:
                self._buffers.show_own()

    # --- checkpoints ---------------------------------------------------------------------------------------------

    def weights(self, default: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """See `Session`."""
        self.have()
        with self._as_validated():
            return {name: _own_storage(value) for name, value in default().items()}

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """Its state dict."""
        snapshot, clients = self.have(), self._joined.clients
        number = next(i for i, client in enumerate(clients) if client.optimizer is optimizer)
        states = snapshot.optimizers[number]["state"]
        copied = {key: _own_storages(state) for key, state in states.items()}
        more = {} if type(optimizer).state_dict is Optimizer.state_dict else optimizer.state_dict()
        return {**more, "state": copied, "param_groups": clients[number].groups()}

    def checkpoint(self, gathered: dict[str, Any]) -> dict[str, Any]:
        """What is to be written, of what Lightning has gathered."""
        own_state = self.ours()
        if own_state is None:  # it has asked for nothing that a snapshot is taken for
            return gathered
        if residuals := self._joined.residuals():
            own_state["residuals"] = residuals
        step = {"global_step": sum(own_state["versions"])}  # Lightning asked before there was a snapshot
        position = self._parts.data.position()
        return for_any_trainer({**gathered, **step}, self._parts.machine.processes, own_state, position)

    def ours(self) -> dict[str, Any] | None:
        """What a checkpoint says for us alone, without the residuals; None where nothing is taken."""
        if self.taken is None:
            return None
        samples = self._parts.figures.counts().samples
        own_state = {"versions": self.taken.versions, "samples": samples, **self._clock_state()}
        return {**own_state, "local": self.taken.local} if self.taken.local else own_state

    def resume(self, checkpoint: Mapping[str, Any], own_state: Mapping[str, Any]) -> ResumePoint:
        """Every worker takes the hyper-parameters; worker 0 puts state and versions back into the shards. `ours`: what
        the checkpoint says for us alone.

        A checkpoint of another strategy says only how many steps all optimizers together have made. One without any
        optimizer's state leaves them as they are. ValueError if it has others than the model.
        """
        optimizers, states = [client.optimizer for client in self._joined.clients], list(checkpoint["optimizer_states"])
        if states and len(states) != len(optimizers):
            raise ValueError(
                f"ckpt_path: the checkpoint has the state of {len(states)} optimizers, and the model has "
                f"{len(optimizers)}. Use the model's configure_optimizers of then, or save with weights_only=True."
            )
        local = self._parts.end.settings.local.steps  # then each worker's state is its own
        for optimizer, state in zip(optimizers, states, strict=False):
            is_own = type(optimizer).load_state_dict is not Optimizer.load_state_dict  # it may look for what it keeps
            saved = copy.deepcopy(state["state"]) if local or is_own else {}
            optimizer.load_state_dict({**state, "state": saved})
        versions = own_state.get("versions", _divided(checkpoint.get("global_step", 0), len(optimizers)))
        steps: list[int] | None = None
        if local:
            saved = own_state.get("local", [])
            states = [{"state": local_state["outer"]} for local_state in saved] or [{"state": {}} for _ in optimizers]
            steps = [local_state["steps"] for local_state in saved] or versions
        if self._parts.rank == 0:
            states = states or [optimizer.state_dict() for optimizer in optimizers]
            self._joined.restore(versions, states, own_state.get("residuals", ()), steps or ())
            self._parts.figures.add_samples(own_state.get("samples", 0))
        self._joined.show_state()
        return ResumePoint(versions, steps, position_in(own_state), own_state.get("clock_s"))


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
