"""The config that runs: the cell's, with all defaults written out."""

import copy
from collections.abc import Mapping
from typing import Any, Final

from scalebook.training.experiments.classes import (
    GROUP_OF_KEY,
    choose_class,
    mapping,
    positive,
    read_class,
    shortest_form,
)
from scalebook.training.experiments.description import ClassInfo, Description, Field
from scalebook.training.experiments.lr_scaling import KEY as LR_SCALING
from scalebook.training.experiments.lr_scaling import read_scaling

DEFAULT_SEED: Final = 1
DEFAULT_THREADS: Final = 1
"""CPU threads of each worker: a worker is one core, whatever the strategy, so that strategies compare."""

DEFAULT_EPOCHS: Final = 10
"""Budget where the config names none; Lightning's own would be 1000 epochs."""

TRAINER_DEFAULTS: Final[dict[str, Any]] = {
    "accelerator": "auto",
    "devices": 1,
    "log_every_n_steps": 50,
    "num_sanity_val_steps": 0,
}
BUDGETS: Final = ("max_epochs", "max_steps", "max_time")
NULL_IS_SAID: Final = ("check_val_every_n_epoch",)
"""Keys of the trainer that mean something else when they are null than when they are left out."""


def seeds_from(config: Mapping[str, Any], count: int) -> list[int]:
    """The config's `seed_everything` (1 where it names none) and the numbers after it, one for each of `count` runs."""
    seed = config.get("seed_everything")
    first = seed if isinstance(seed, int) and not isinstance(seed, bool) else DEFAULT_SEED
    return [first + offset for offset in range(count)]


def complete(config: Mapping[str, Any], description: Description) -> dict[str, Any]:
    """`config` with classes by full path, their defaults, an optimizer, a seed, threads and a budget.

    Idempotent. Says what the run will use, so that a later change of a default does not change what a record means.
    Expects a config without errors; what it does not know it leaves as it stands.
    """
    return to_read(copy.deepcopy(dict(config)), description)


def to_read(config: Mapping[str, Any], description: Description) -> dict[str, Any]:
    """`complete` for reading only: its values are the config's own."""
    done = dict(config)
    seed = done.get("seed_everything")
    done["seed_everything"] = DEFAULT_SEED if seed is None or isinstance(seed, bool) else seed
    if done.get("threads") is None:
        done["threads"] = DEFAULT_THREADS
    done["trainer"] = _trainer(mapping(done.get("trainer")), description)
    model = read_class(done.get("model")).info("models", description)
    if model is not None and model.own_optimizer:
        done.pop("optimizer", None)
        done.pop("lr_scheduler", None)
    elif done.get("optimizer") is None:
        done["optimizer"] = copy.deepcopy(description.default_optimizer)
    for key, group in GROUP_OF_KEY.items():
        if done.get(key) is not None:
            done[key] = _spelled_out(done[key], read_class(done[key]).info(group, description))
        else:
            done.pop(key, None)
    return with_extras(done)


def with_extras(config: dict[str, Any]) -> dict[str, Any]:
    """The config with the defaults of `lr_scaling` written out, and without extra keys that are at their default."""
    scaling = read_scaling(config.get(LR_SCALING))
    if scaling is not None:
        config[LR_SCALING] = scaling.written()
    nothing = {LR_SCALING: None, "noise_scale": False, "float32_matmul_precision": None, "gpu_share": 1}
    for key in nothing:
        if config.get(key) in (None, nothing[key]):
            config.pop(key, None)
    return config


def _trainer(trainer: Mapping[str, Any], description: Description) -> dict[str, Any]:
    given = {key: value for key, value in trainer.items() if value is not None or key in NULL_IS_SAID}
    done = {**TRAINER_DEFAULTS, **given}
    if all(done.get(key) in (None, -1) for key in BUDGETS) and "max_epochs" not in done:
        done["max_epochs"] = DEFAULT_EPOCHS
    strategy = done.pop("strategy", "auto")
    info = read_class(strategy).info("strategies", description)
    several = (isinstance(done["devices"], int) and done["devices"] > 1) or (positive(done.get("num_nodes")) or 1) > 1
    if info is not None and info.config_value == "auto" and several:
        strategy = "ddp"  # what Lightning's `auto` chooses for several devices, said aloud
    elif info is not None:
        plain = info.config_value if not _own_args(strategy, info) else None
        strategy = plain or _spelled_out(strategy, info)
    return {"strategy": strategy, **done}


def _own_args(value: Any, info: ClassInfo) -> bool:
    """Whether the config gives the class any argument that is not what it takes by itself."""
    fields = {field.name: field for field in info.fields}
    given = read_class(value).args
    return given is None or any(
        name not in fields or shortest_form(value_, fields[name]) != fields[name].default
        for name, value_ in given.items()
    )


def _spelled_out(value: Any, info: ClassInfo | None) -> Any:
    """`{class_path, init_args}` with the full path and every default that is not None.

    Of a library's class only those a form shows at once: its switches for speed say nothing about an experiment.
    """
    reference = read_class(value)
    if info is None or reference.args is None:
        return value
    args: dict[str, Any] = {}
    for field in info.fields:
        if field.name in reference.args:
            args[field.name] = _class_value(reference.args[field.name], field)
        elif field.default is not None and not (info.source == "library" and field.advanced):
            args[field.name] = _class_value(copy.deepcopy(field.default), field)
    rest = {name: given for name, given in reference.args.items() if name not in args}
    done: dict[str, Any] = {"class_path": info.class_path, "init_args": {**args, **rest}}
    if isinstance(value, Mapping) and "dict_kwargs" in value:
        done["dict_kwargs"] = value["dict_kwargs"]
    return done


def _class_value(value: Any, field: Field) -> Any:
    """The value of a field that is a class, `bounded`, with path and arguments; any other as it stands."""
    choice = choose_class(value, field) if field.type == "class" else None
    if choice is None:
        return value
    written = value if isinstance(value, Mapping) else {"class_path": choice.info.class_path}
    return _spelled_out(written, choice.info)
