"""What the four handles of a search mean in a config: batch size, learning rate, strategy, workers."""

import contextlib
from collections.abc import Mapping
from typing import Any, Final

from scalebook.training.config.class_fields import chosen
from scalebook.training.config.classes import mapping, named
from scalebook.training.config.description import Description, Field
from scalebook.training.config.paths import PathTarget, place, put
from scalebook.training.config.workload import workload
from scalebook.training.errors import ConfigError
from scalebook.training.ps.policy.rules import RULES

SINGLE: Final = ("single", "auto")
STRATEGIES: Final = ("single", "ddp", *RULES)
"""Words for a strategy: in one process; Lightning's DDP; a parameter server by one of its rules."""

RATES: Final = ("optimizer.lr", "model.learning_rate", "model.lr")
"""Where a learning rate may stand, in the order in which `workload` looks for it."""


def is_single(value: Any) -> bool:
    """Whether this strategy trains in one process, however many workers a point says."""
    return isinstance(value, str) and value in SINGLE


def batch_place(config: Mapping[str, Any], description: Description) -> PathTarget:
    """Where the batch size stands; ConfigError where the data set has none."""
    try:
        return place("data.batch_size", config, description)
    except ConfigError as error:
        name = named(config.get("data")).name or "The data set"
        what = f"cannot be set: {name} has no argument batch_size"
        raise ConfigError("batch_size", what, "Vary another field.") from error


def rate_place(config: Mapping[str, Any], description: Description) -> PathTarget:
    """Where the learning rate stands: of the optimizer, or of a model that has its own."""
    model = named(config.get("model")).info("models", description)
    own = model is not None and model.own_optimizer
    for path in RATES:
        if not (own and path.startswith("optimizer.")):
            with contextlib.suppress(ConfigError):
                return place(path, config, description)
    who = f"{model.name} has an optimizer of its own and no" if model and own else "the optimizer has no"
    raise ConfigError("learning_rate", f"cannot be set: {who} argument for it", "Vary a field by its path.")


def put_strategy(config: Mapping[str, Any], value: Any, description: Description) -> dict[str, Any]:
    """`config` under another strategy: one of the words, or whatever a config may say itself.

    Settings of a parameter server stay when only its rule changes.
    """
    if is_single(value):
        alone = put(config, PathTarget(("trainer", "strategy"), None, "strategies"), "auto", description)
        return {**alone, "trainer": {**alone["trainer"], "devices": 1}}
    if isinstance(value, str) and value in RULES:
        rule = _rule(config, description)
        choice = chosen(mapping(named(_strategy(config)).args).get("rule", rule.default), rule) if rule else None
        strategy: dict[str, Any] = {"class_path": "AsyncPS"}
        if not (_is_server(config, description) and choice is not None and choice.word == value):
            strategy["init_args"] = {"rule": value}
        value = strategy
    return put(config, PathTarget(("trainer", "strategy"), None, "strategies"), value, description)


def put_workers(config: Mapping[str, Any], workers: int, description: Description) -> dict[str, Any]:
    """`config` with so many workers, all on the devices that it has: one process becomes DDP where they are several."""
    trainer = dict(mapping(config.get("trainer")))
    if _is_server(config, description) and place_of_workers(description):
        devices = trainer.get("devices")
        if trainer.get("accelerator") == "cpu":
            trainer.pop("devices", None)
        elif isinstance(devices, int) and not isinstance(devices, bool) and devices > workers:
            trainer["devices"] = workers
        where = PathTarget(("trainer", "strategy", "workers"), None)
        return put({**config, "trainer": trainer}, where, workers, description)
    if workers > 1 and workload(config, description).strategy == "single":
        trainer["strategy"] = "ddp"
    trainer["devices"] = workers
    return {**config, "trainer": trainer}


def place_of_workers(description: Description) -> bool:
    """Whether the parameter server has an argument for the number of its workers."""
    info = description.find("strategies", "AsyncPS")
    return info is not None and any(field.name == "workers" for field in info.fields)


def _strategy(config: Mapping[str, Any]) -> Any:
    return mapping(config.get("trainer")).get("strategy")


def _is_server(config: Mapping[str, Any], description: Description) -> bool:
    info = named(_strategy(config)).info("strategies", description)
    return info is not None and info.name == "AsyncPS"


def _rule(config: Mapping[str, Any], description: Description) -> Field | None:
    info = named(_strategy(config)).info("strategies", description)
    return (
        next((field for field in info.fields if field.name == "rule" and field.type == "class"), None) if info else None
    )
