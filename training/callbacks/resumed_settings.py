"""Settings that differ from those of the checkpoint that a run resumes from: the run's own are the ones that train."""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any, Final

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor
from torch.optim import Optimizer
from typing_extensions import override

from scalebook.training.base import ConfigError
from scalebook.training.tracking import RunLogger, names

RATE: Final = "lr"
INITIAL: Final = "initial_lr"
"""What torch's schedulers call the rate that was configured."""
RATES: Final = (RATE, INITIAL)
LAST_RATES: Final = "_last_lr"
"""What a torch scheduler calls the rates of its last step."""
REMEDY: Final = "Use the checkpoint's setting, or start without ckpt_path."
Settings = dict[str, Any]


class ResumedSettings(Callback):
    """Puts this run's settings in place of those that a checkpoint would restore over them.

    A checkpoint restores the options of optimizers, of schedulers and of callbacks (EarlyStopping's patience) as they
    were when it was written. So each checkpoint also has them as they were configured: what is configured differently
    now was changed by the user, what only training has changed (a schedule's rate) was not. A changed learning rate
    multiplies the checkpoint's present rate by new / old, as a schedule would have it. Each change is printed. What
    cannot be changed is a ConfigError before training; for a checkpoint of an earlier version, which does not say how
    it was configured, a warning, and the run's tag `scalebook.from_checkpoint`.
    """

    def __init__(self) -> None:
        self.configured: dict[str, Any] = {}
        """What checkpoints of this run say: "callbacks" by state key, "optimizers" and "schedulers" as lists."""
        self._then: dict[str, Any] | None = None

    @override
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        others = [callback for callback in _callbacks(trainer) if callback is not self]
        self.configured = {"callbacks": {callback.state_key: _state(callback) for callback in others}}

    @override
    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """ConfigError for a checkpoint that has been through all epochs: Lightning would train nothing."""
        most, loops = trainer.max_epochs, checkpoint.get("loops", {}).get("fit_loop", {})
        over = loops.get("epoch_progress", {}).get("current", {}).get("processed", 0)
        if trainer.state.fn == TrainerFn.FITTING and most is not None and 0 <= most <= over:
            epochs = f"{over} epoch{'' if over == 1 else 's'}"
            is_whole = loops.get("epoch_loop.batch_progress", {}).get("is_last_batch", True)
            cut = "" if is_whole else " (including the last one, which was cut short)"
            problem = f"is {most}, but the checkpoint has already completed {epochs}{cut}, so nothing is left to train"
            raise ConfigError("trainer.max_epochs", problem, f"Use more than {over}, or start without ckpt_path.")

    @override
    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        schedulers = [config.scheduler for config in trainer.lr_scheduler_configs]
        self.configured["optimizers"] = [_options(optimizer) for optimizer in trainer.optimizers]
        self.configured["schedulers"] = [_named(one, _plain(one.state_dict())) for one in schedulers]
        checkpoint = trainer._checkpoint_connector._loaded_checkpoint
        if not checkpoint or "optimizer_states" not in checkpoint:
            return
        changed = [*self._callbacks_changed(trainer, checkpoint), *self._of_training(trainer, checkpoint)]
        if changed and trainer.is_global_zero:
            print("\n".join(f"scalebook: resumed with {line}" for line in changed), flush=True)

    @override
    def state_dict(self) -> dict[str, Any]:
        return self.configured

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._then = state_dict

    def _callbacks_changed(self, trainer: Trainer, checkpoint: Mapping[str, Any]) -> Iterator[str]:
        for callback in _callbacks(trainer):
            now = self.configured["callbacks"].get(callback.state_key, {})
            restored = checkpoint.get("callbacks", {}).get(callback.state_key, {})
            if self._then is None:
                self._warn(trainer, type(callback).__name__, _arguments(callback, now), restored)
                continue
            then = self._then["callbacks"].get(callback.state_key, {})
            news = {key: value for key, value in now.items() if key in then and _differs(then[key], value)}
            for key, value in news.items():
                _require(f"{type(callback).__name__}.{key}", restored.get(key) == then[key], then[key], value)
                yield f"{type(callback).__name__}.{key} {value!r} (in the checkpoint: {then[key]!r})"
            if news:
                callback.load_state_dict({**callback.state_dict(), **news})

    def _of_training(self, trainer: Trainer, checkpoint: dict[str, Any]) -> Iterator[str]:
        saved = checkpoint["optimizer_states"]
        if self._then is None:
            for now, state in zip(self.configured["optimizers"], saved, strict=False):
                for group, of_file in zip(now["groups"], state["param_groups"], strict=False):
                    self._warn(trainer, "optimizer", group, {**of_file, RATE: of_file.get(INITIAL, of_file.get(RATE))})
            return
        for key, part in (("optimizer", "optimizers"), ("lr_scheduler", "schedulers")):
            then_and_now = ([one["class"] for one in of_run[part]] for of_run in (self._then, self.configured))
            _require_same(key, *then_and_now)
        for then, now, state in zip(self._then["optimizers"], self.configured["optimizers"], saved, strict=True):
            for old, new, group in zip(then["groups"], now["groups"], state["param_groups"], strict=False):
                yield from _regrouped(group, old, new)
        schedulers = [config.scheduler for config in trainer.lr_scheduler_configs]
        for scheduler, then, now, state in zip(
            schedulers,
            self._then["schedulers"],
            self.configured["schedulers"],
            checkpoint["lr_schedulers"],
            strict=True,
        ):
            yield from _rescheduled(state, then["state"], now["state"], scheduler.state_dict(), now["class"])

    def _warn(self, trainer: Trainer, owner: str, now: Settings, restored: Mapping[str, Any]) -> None:
        """For a checkpoint of an earlier version."""
        overridden = {
            key: restored[key] for key, new in now.items() if key in restored and _listed(restored[key]) != new
        }
        if not overridden or not trainer.is_global_zero:
            return
        lines = [f"{owner}.{key} {_listed(value)!r} (configured: {now[key]!r})" for key, value in overridden.items()]
        print(f"scalebook: warning: training uses the checkpoint's settings: {', '.join(lines)}. {REMEDY}", flush=True)
        for logger in trainer.loggers:
            if isinstance(logger, RunLogger):
                logger.experiment.set_tag(logger.run_id, names.TAG_FROM_CHECKPOINT, ", ".join(lines))


def _callbacks(trainer: Trainer) -> list[Callback]:
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]  # made by Lightning's connector
    return callbacks


def _state(callback: Callback) -> Settings:
    try:
        return _plain(callback.state_dict())
    except Exception:  # noqa: BLE001 - one that needs training to have begun has nothing of the config in its state
        return {}


def _arguments(callback: Callback, state: Settings) -> Settings:
    """What of its state was passed to its constructor."""
    parameters = inspect.signature(type(callback)).parameters
    return {key: value for key, value in state.items() if key in parameters and value is not None}


def _options(optimizer: Optimizer) -> Settings:
    groups = [
        _plain({key: value for key, value in group.items() if key != "params"}) for group in optimizer.param_groups
    ]
    return {**_named(optimizer, {}), "groups": groups}


def _named(thing: object, state: Settings) -> Settings:
    return {"class": f"{type(thing).__module__}.{type(thing).__qualname__}", "state": state}


def _plain(state: Mapping[str, Any]) -> Settings:
    """What consists of numbers and texts; one-element tensors as numbers, tuples as lists."""
    values = {key: _listed(value) for key, value in state.items() if isinstance(key, str)}
    return {key: value for key, value in values.items() if _is_plain(value)}


def _listed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _listed(one) for key, one in value.items()}
    return [_listed(one) for one in value] if isinstance(value, list | tuple) else _number(value)


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor) and value.numel() == 1 else value


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str | int) for key in value) and all(map(_is_plain, value.values()))
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, float, str)


def _differs(one: Any, other: Any) -> bool:
    """Whether two settings differ; NaN is NaN."""
    return bool(one != other and (one == one or other == other))


def _require(key: str, possible: bool, then: Any, now: Any) -> None:
    if not possible:
        problem = (
            f"is {now!r} but was {then!r} when the checkpoint's run started, and training has changed the value since "
            "then"
        )
        raise ConfigError(key, problem, REMEDY)


def _require_same(key: str, then: list[str], now: list[str]) -> None:
    if then != now:
        words = [" and ".join(name.rpartition(".")[2] for name in classes) or "none" for classes in (now, then)]
        raise ConfigError(key, f"is {words[0]}, but the checkpoint has {words[1]}", REMEDY)


def _regrouped(group: dict[str, Any], then: Settings, now: Settings) -> Iterator[str]:
    """Change a param group of the checkpoint."""
    for key, new in now.items():
        if key not in then or key not in group or not _differs(then[key], new):
            continue
        old, present = then[key], group[key]
        if _listed(present) == old:
            group[key] = new
        else:
            _require(f"optimizer.{key}", key in RATES and bool(old), old, new)
            group[key] = present * (new / old)
        if key != RATE or INITIAL not in now:
            yield f"optimizer.{RATE if key == INITIAL else key} {new!r} (in the checkpoint: {old!r})"


def _rescheduled(
    state: dict[str, Any], then: Settings, now: Settings, own: Mapping[str, Any], name: str
) -> Iterator[str]:
    """Change the state of a scheduler in the checkpoint; `own` is this run's, before its first step."""
    short = name.rpartition(".")[2]
    for key, new in now.items():
        if key not in then or key not in state or not _differs(then[key], new):
            continue
        old = then[key]
        if key == LAST_RATES:
            factors = [one / before if before else 1.0 for one, before in zip(new, old, strict=True)]
            state[key] = [rate * factor for rate, factor in zip(state[key], factors, strict=True)]
        elif _listed(state[key]) == old:
            state[key] = own[key]
            if key != "base_lrs":
                yield f"{short}.{key} {new!r} (in the checkpoint: {old!r})"
        else:
            _require(f"{short}.{key}", False, old, new)
