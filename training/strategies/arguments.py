"""The arguments of AsyncPS: checked one by one, and what the engine is told of them and of the Trainer's."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lightning.pytorch import Trainer
from lightning.pytorch.utilities import GradClipAlgorithmType, rank_zero_warn
from lightning.pytorch.utilities.model_helpers import is_overridden

from scalebook.training.ps import Clip, HostName, Settings
from scalebook.training.ps.policy.damping import Damping
from scalebook.training.ps.policy.rules import Rule
from scalebook.training.strategies.batch_norm import BatchNormPolicy

KEY: Final = "trainer.strategy.init_args"
LEAST: Final = {"workers": 1, "warmup_updates": 0, "shards": 1, "restarts": 0, "threads": 1}


@dataclass(frozen=True)
class Arguments:
    """As `AsyncPS` documents them. ValueError that names the argument and the remedy."""

    rule: Rule
    damping: Damping
    workers: int | None
    warmup_updates: int
    shards: int
    host: HostName
    overlap: bool
    batch_norm: BatchNormPolicy
    restarts: int
    trace: bool
    norms: bool
    deadline_s: float
    threads: int | None

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                more = ", or null" if name in ("workers", "threads") else ""
                raise ValueError(f"{KEY}.{name}: {value} is less than {least}. Use {least} or more{more}.")
        if self.deadline_s <= 0:
            raise ValueError(f"{KEY}.deadline_s: {self.deadline_s:g} is not positive. Use 600.")

    def settings(self, trainer: Trainer) -> Settings:
        """What the engine is told, of the Trainer's `max_steps` and, for gathering rules, of its clipping too."""
        return Settings(
            rule=self.rule,
            damping=self.damping,
            warmup_updates=self.warmup_updates,
            max_updates=None if trainer.max_steps == -1 else trainer.max_steps,
            clip=shared_clip(trainer, self.rule),
            shards=self.shards,
            host=self.host,
            overlap=self.overlap,
            trace=Path(trainer.default_root_dir) / "trace" if self.trace else None,
            norms=self.norms,
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
