"""Snapshots that worker 0 validates and saves: parameters, optimizer state, statistics and data position at one
time."""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from scalebook.training.engine.worker import worker_end
from scalebook.training.lightning.async_ps.applied_step import ScheduleFollower
from scalebook.training.lightning.async_ps.worker_process import WorkerParts
from scalebook.training.lightning.buffers import Buffers
from scalebook.training.lightning.portable_checkpoint import for_any_trainer, position_in
from scalebook.training.lightning.worker_role import ends_here


@dataclass(frozen=True)
class ResumePoint:
    """Where a run resumes: the checkpoint's versions by optimizer, which count the steps; with `local`, the step
    numbers that schedule the learning rates; the position in the data, if it has one."""

    versions: list[int]
    steps: list[int] | None = None
    position: dict[str, Any] | None = None
    clock_s: float | None = None
    """The clock of a simulated run, s."""

    @property
    def scheduled(self) -> list[int]:
        """The steps that have scheduled the learning rates so far."""
        return self.steps or self.versions


class Snapshots:
    """Worker 0 validates and writes checkpoints from a consistent snapshot while the others go on.

    A snapshot is valid until the next batch. The last one of a run waits for every update, and stays valid after the
    fit.

    Args:
        wait_for_others: Returns when all updates of the run have been made; sets `has_all`.
        clock_state: The state of the run's clock for a checkpoint, if it has one.
    """

    def __init__(
        self,
        parts: WorkerParts,
        joined: worker_end.JoinedEnd,
        buffers: Buffers,
        following: ScheduleFollower,
        wait_for_others: Callable[[], None],
        clock_state: Callable[[], dict[str, Any]],
    ) -> None:
        self._parts, self._joined, self._buffers, self._following = parts, joined, buffers, following
        self._wait_for_others, self._clock_state = wait_for_others, clock_state
        self.taken: worker_end.Snapshot | None = None
        """The snapshot of the version in worker 0's replica."""
        self.has_begun = False
        """Whether this worker has begun to train: until then it has the first version, and what was loaded into it."""
        self.has_all = False
        """Whether what is taken is the run's last, of which nobody trains on."""

    def drop(self) -> None:
        """Drop the snapshot, because training goes on."""
        self.taken = None

    def have(self) -> worker_end.Snapshot:
        """The snapshot taken since the last batch (for a validation, say), or a new one, so that what is saved is what
        was validated."""
        return self.taken or self.take()

    def take(self, moment: str = "after its last step and before a checkpoint") -> worker_end.Snapshot:
        """Take a snapshot of the present parameters, optimizer states and data position, to validate, name and save.

        `moment`: the present moment in words, for the error about code that has written into parameters.
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
        """The optimizer's state dict in the snapshot."""
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
        """AsyncPS's part of a checkpoint, without the residuals; None without a snapshot."""
        if self.taken is None:
            return None
        samples = self._parts.figures.counts().samples
        own_state = {"versions": self.taken.versions, "samples": samples, **self._clock_state()}
        return {**own_state, "local": self.taken.local} if self.taken.local else own_state

    def resume(self, checkpoint: Mapping[str, Any], own_state: Mapping[str, Any]) -> ResumePoint:
        """Restore hyper-parameters in every worker; worker 0 also restores state and versions in the shards.
        `own_state`: AsyncPS's part of the checkpoint.

        A checkpoint of another strategy only has the number of steps of all optimizers together. A checkpoint without
        optimizer states leaves them unchanged. ValueError if it has other optimizers than the model.
        """
        optimizers, states = [client.optimizer for client in self._joined.clients], list(checkpoint["optimizer_states"])
        if states and len(states) != len(optimizers):
            raise ValueError(
                f"ckpt_path: the checkpoint has the state of {len(states)} optimizers, but the model has "
                f"{len(optimizers)}. Use the configure_optimizers with which the checkpoint was saved, or save "
                "checkpoints with weights_only=True."
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
