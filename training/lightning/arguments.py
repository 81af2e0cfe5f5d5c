"""The arguments of the strategies: parsed as in a config, checked, and turned into the engine's settings.

A mapping becomes the same object as the same lines of a config, or is refused with the same message, with key and
remedy: `AsyncPS(clock={"gradient_s": 0.05}, host="virtual")`.
"""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from scalebook.training.base import ConfigError
from scalebook.training.engine.rules import (
    ArgumentError,
    Clip,
    ClockSettings,
    CountOrNone,
    Limits,
    Rule,
    Settings,
    WorkerRange,
    check_limits,
    made_clock,
    run_limits,
)
from scalebook.training.lightning.buffers import BufferPolicy
from scalebook.training.lightning.package import GradClipAlgorithmType, Trainer, is_overridden

T = TypeVar("T")


def read_workers(written: T) -> T:
    """A number or None unchanged; `{min, max}` as a WorkerRange. ValueError for anything else."""
    value: Any = written if isinstance(written, int | WorkerRange | None) else run_limits.read_range(written)
    return value  # type: ignore[no-any-return]  # T, as the caller annotates its argument


def read_clock_settings(written: ClockSettings | None) -> ClockSettings | None:
    """A nested mapping as ClockSettings. ValueError for anything else."""
    return written if isinstance(written, ClockSettings | None) else made_clock(_plain(written))


def read_object(written: T, annotation: Any, argument: str) -> T:
    """`{class_path, init_args}` as an object of a class that the `annotation` allows; anything else unchanged. The
    caller's own class needs its full path."""
    if not isinstance(written, Mapping):
        return written
    # What a strategy that is given objects does without: it needs torch and Lightning alone.
    from scalebook.training.experiments import argument as parsed_argument
    from scalebook.training.experiments import check_value, classes, paths_today

    value = paths_today(_plain(written))
    package = _imported(value.get("class_path"), argument)
    parser, field = parsed_argument(annotation, packages=[package] if package else [])
    if (problem := check_value(argument, value, field)) is not None:
        raise ConfigError.of(problem)
    choice = classes.choose_class(value, field)
    assert choice is not None, "check_value has found it"
    parsed = parser.parse_object({field.name: {"class_path": choice.info.class_path, "init_args": dict(choice.args)}})
    instance: T = parser.instantiate_classes(parsed)[field.name]
    return instance


def _imported(name: Any, argument: str) -> str:
    """The module of the class that is called `name`, imported; "" for a short name, and for what is no name."""
    module = name.rpartition(".")[0] if isinstance(name, str) else ""
    try:
        if module:
            importlib.import_module(module)
    except ImportError as error:
        why = f"names {name!r}, whose module cannot be imported ({error})"
        raise ArgumentError("unknown-class", argument, why, "Check the path.") from error
    return module


def _plain(value: Any) -> Any:
    """Mappings and sequences of whatever kind (hydra has its own) as dicts and lists."""
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(item) for item in value]
    return value


RecordName = Literal["nothing", "drift", "updates"]


@dataclass(frozen=True)
class AsyncArguments:
    """The arguments that `AsyncPS` documents. ValueError names the argument and the remedy."""

    server: Settings
    """The engine's settings, before those that follow from the Trainer's."""
    workers: CountOrNone | WorkerRange
    buffers: BufferPolicy | None
    limits: Limits
    record: RecordName
    tls: bool

    def __post_init__(self) -> None:
        for arguments in (self, self.server):
            check_limits(type(arguments), vars(arguments))
        for name, kind in (("buffers", BufferPolicy), ("record", RecordName)):
            value, choices = getattr(self, name), get_args(kind)
            if value not in choices and not (name == "buffers" and value is None):
                raise ArgumentError("unknown-value", name, f"{value!r} is unknown", f"Use one of {', '.join(choices)}.")

    @property
    def elastic(self) -> WorkerRange | None:
        """The range for the number of workers, if nodes may join and leave."""
        return self.workers if isinstance(self.workers, WorkerRange) else None

    def on_each(self, devices: int) -> int:
        """Workers on each node."""
        return self.workers if isinstance(self.workers, int) else devices

    @property
    def is_simulated(self) -> bool:
        """Whether one process simulates all workers."""
        return self.server.host == "virtual"

    def settings(self, trainer: Trainer) -> Settings:
        """The engine's settings, with the Trainer's `max_steps` and, for gathering rules, its clipping."""
        scales = getattr(trainer.precision_plugin, "scaler", None) is not None  # it steps after the closure
        return replace(
            self.server,
            max_updates=None if trainer.max_steps == -1 else trainer.max_steps,
            closures=trainer.lightning_module.automatic_optimization and not scales,
            clip=None if self.server.local.steps else shared_clip(trainer, self.server.rule),
            trace=Path(trainer.default_root_dir) / "trace" if self.record == "updates" else None,
        )


def shared_clip(trainer: Trainer, rule: Rule) -> Clip | None:
    """The Trainer's clipping, if the engine does it: a gathering rule clips the average, as DDP does.

    Under an immediate rule Lightning clips each worker's gradient before the push. A model's own
    `configure_gradient_clipping` runs in the worker (`gradient_hooks.py`), and what Lightning refuses is still refused.
    """
    limit, model = trainer.gradient_clip_val, trainer.lightning_module
    if not rule.gathers or not limit or not model.automatic_optimization:
        return None
    if is_overridden("configure_gradient_clipping", model):
        return None
    by_value = trainer.gradient_clip_algorithm == GradClipAlgorithmType.VALUE
    return Clip("value" if by_value else "norm", float(limit))
