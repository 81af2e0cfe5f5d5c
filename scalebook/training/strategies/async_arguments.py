"""The arguments of AsyncPS: checked one by one, and what the engine is told of them and of the Trainer's."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from scalebook.training.ps.policy.bounds import CountOrNone, check
from scalebook.training.ps.policy.contradictions import ARGUMENTS
from scalebook.training.ps.policy.limits import Limits
from scalebook.training.ps.policy.rules import Rule
from scalebook.training.ps.policy.settings import Clip, Settings
from scalebook.training.ps.policy.worker_range import WorkerRange
from scalebook.training.strategies.buffers import BufferPolicy
from scalebook.training.strategies.lightning import GradClipAlgorithmType, Trainer, is_overridden, rank_zero_warn

RecordName = Literal["nothing", "drift", "updates"]


@dataclass(frozen=True)
class AsyncArguments:
    """As `AsyncPS` documents them. ValueError that names the argument and the remedy."""

    server: Settings
    """Those that are the engine's, without what it is told of the Trainer's."""
    workers: CountOrNone | WorkerRange
    buffers: BufferPolicy | None
    limits: Limits
    record: RecordName
    tls: bool

    def __post_init__(self) -> None:
        for arguments in (self, self.server):
            check(type(arguments), vars(arguments), ARGUMENTS)
        for name, kind in (("buffers", BufferPolicy), ("record", RecordName)):
            value, known = getattr(self, name), get_args(kind)
            if value not in known and not (name == "buffers" and value is None):
                raise ValueError(f"{ARGUMENTS}.{name}: {value!r} is unknown. Use one of {', '.join(known)}.")

    @property
    def elastic(self) -> WorkerRange | None:
        """How many workers may be there, where machines may join and leave."""
        return self.workers if isinstance(self.workers, WorkerRange) else None

    def on_each(self, devices: int) -> int:
        """Workers of each machine."""
        return self.workers if isinstance(self.workers, int) else devices

    @property
    def is_simulated(self) -> bool:
        """Whether one process plays all workers."""
        return self.server.host == "virtual"

    def settings(self, trainer: Trainer) -> Settings:
        """What the engine is told, of the Trainer's `max_steps` and, for gathering rules, of its clipping too."""
        return replace(
            self.server,
            max_updates=None if trainer.max_steps == -1 else trainer.max_steps,
            clip=None if self.server.local.steps else shared_clip(trainer, self.server.rule),
            trace=Path(trainer.default_root_dir) / "trace" if self.record == "updates" else None,
        )


def shared_clip(trainer: Trainer, rule: Rule) -> Clip | None:
    """The Trainer's clipping, where it is for the engine: a gathering rule clips the average, as DDP does.

    Under an immediate rule each worker clips its gradient before the push, by Lightning. A model's own
    `configure_gradient_clipping` stays the worker's affair too, and what Lightning refuses it refuses still.
    """
    limit, model = trainer.gradient_clip_val, trainer.lightning_module
    if not rule.gathers or not limit or not model.automatic_optimization:
        return None
    if is_overridden("configure_gradient_clipping", model):
        rank_zero_warn(f"The model's configure_gradient_clipping clips before the average that rule {rule.name} takes.")
        return None
    by_value = trainer.gradient_clip_algorithm == GradClipAlgorithmType.VALUE
    return Clip("value" if by_value else "norm", float(limit))
