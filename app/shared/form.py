"""The experiment form without its widgets: reading values from a config, and writing them into it.

A config written by hand keeps every key that the form does not know. Values equal to a default are left out, except
those that a reader of the notebook wants to see: batch size, learning rate, strategy, workers, budget.
"""

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from scalebook.training.experiments import (
    VIRTUAL,
    ClassInfo,
    Description,
    Experiment,
    Field,
    Group,
    NamedClass,
    classes,
)

Config = dict[str, Any]
BudgetKind = Literal["epochs", "updates", "time"]
BUDGET_KINDS: tuple[BudgetKind, ...] = get_args(BudgetKind)
BUDGET_KEYS: dict[BudgetKind, str] = {"epochs": "max_epochs", "updates": "max_steps", "time": "max_time"}
SHOWN_THOUGH_DEFAULT = (
    "data.init_args.batch_size", "optimizer.init_args.lr", "trainer.strategy.init_args.rule", "lr_scaling.rule",
    "lr_scaling.per",
)  # fmt: skip
HANDLED_TRAINER_KEYS = ("strategy", "devices", "num_nodes", "max_epochs", "max_steps", "max_time")
HANDLED_STRATEGY_ARGS = ("workers",)
SHOWN_STRATEGY_ARGS = ("rule", "damping", "exchange", "topology", "codec")
STRATEGY: Final = "trainer.strategy.init_args"
WORKERS: Final = f"{STRATEGY}.workers"
CLOCK: Final = f"{STRATEGY}.clock"
"""Path of the clock, which makes workers simulated together with the strategy's `host`; one switch sets both."""
TAKEN_ALONG: Final = ("model", "data", "optimizer", "lr_scheduler")
"""What a new experiment takes from one with a model of the user's."""
DEFAULT_EPOCHS: Final = 10
USUAL_GRADIENT_S: Final = 0.1


@dataclass(frozen=True)
class Budget:
    """How long a run may take: epochs, updates, or minutes."""

    kind: BudgetKind
    value: Any
    """A number; or another value, if the config has no number there."""


class ConfigDraft:
    """A config that a form edits in place."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def get(self, path: str, default: Any = None) -> Any:
        """The value at a dotted path."""
        value: Any = self.config
        for key in path.split("."):
            if not isinstance(value, Mapping) or key not in value:
                return default
            value = value[key]
        return value

    def put(self, path: str, value: Any) -> None:
        """Set the value at a dotted path; creates the mappings on the way, also in place of other values."""
        holder = self.config
        *parents, last = path.split(".")
        for key in parents:
            if not isinstance(holder.get(key), dict):
                holder[key] = {}
            holder = holder[key]
        holder[last] = value

    def drop(self, path: str) -> None:
        """Remove the value at a dotted path, and `init_args` that become empty."""
        *parents, last = path.split(".")
        holder = self.get(".".join(parents)) if parents else self.config
        if isinstance(holder, dict):
            holder.pop(last, None)
            if not holder and parents and parents[-1] == "init_args":
                self.drop(".".join(parents))

    def chosen_class(self, key: str, group: Group, description: Description) -> ClassInfo | None:
        """The class that the config names at `key`; None if it names none, or an unknown one."""
        return self._named(key).info(group, description)

    def _named(self, key: str) -> NamedClass:
        return classes.read_class(self.get(key))

    def choose(self, key: str, info: ClassInfo, group: Group, description: Description) -> None:
        """Name the class `info` at `key`. Its arguments stay if the class does not change, and are removed
        otherwise."""
        path, args = info.class_path, dict[str, Any]()
        if self.chosen_class(key, group, description) == info:  # results hang on the name that it is written with
            path = self._named(key).name or info.class_path
            args = copy.deepcopy(dict(classes.mapping(self.get(f"{key}.init_args"))))
        if info.config_value is not None and not args:
            self.put(key, info.config_value)
            return
        self.put(key, {"class_path": path, **({"init_args": args} if args else {})})

    def open_arguments(self, key: str, info: ClassInfo) -> None:
        """Replace a one-word class at `key`, such as `ddp`, by its path, so that it can have arguments."""
        if self.get(key) == info.config_value:
            self.put(key, {"class_path": info.class_path})

    def close_arguments(self, key: str, info: ClassInfo) -> None:
        """Undo `open_arguments` if the class has no arguments."""
        if info.config_value is not None and not self.get(f"{key}.init_args"):
            self.put(key, info.config_value)

    def value(self, path: str, field: Field) -> Any:
        """The config's value at `path`, or the field's default."""
        return self.get(path, field.default)

    def assign(self, path: str, field: Field, value: Any) -> None:
        """Write `value` at `path`, or remove the key if the value only repeats the default."""
        # 0 and 0.0 are one number; True and 1 are not one value
        repeats_default = value == field.default and isinstance(value, bool) == isinstance(field.default, bool)
        if (repeats_default and path not in SHOWN_THOUGH_DEFAULT) or (value is None and not field.nullable):
            self.drop(path)
        else:
            self.put(path, value)

    def workers(self, description: Description) -> Any:
        """The number of workers on each node; the written value if it is not a valid number."""
        own = self.get("trainer.strategy.init_args.workers")
        written = self.get("trainer.devices") if own is None or isinstance(own, Mapping) else own
        misread = (isinstance(written, str) and written != "auto") or (
            isinstance(written, int | float) and written < 1 and written != -1
        )
        strategy = Experiment(self.config, description).strategy
        return written if misread else max(1, strategy.workers // strategy.nodes)

    def assign_workers(self, workers: Any) -> None:
        """Write the number of workers: as the strategy's `workers` if the config has it, else as `trainer.devices`."""
        if not isinstance(self.get("trainer.strategy.init_args.workers"), Mapping | None):
            self.put("trainer.strategy.init_args.workers", workers)
        else:
            self.put("trainer.devices", workers)

    def may_range(self, info: ClassInfo) -> bool:
        """Whether nodes may join and leave: with a parameter server on several nodes, or if the config says so."""
        takes = any(field.name == "workers" for field in info.fields)
        return takes and not self.is_simulated() and (self._nodes() > 1 or self.is_range())

    def _nodes(self) -> int:
        return classes.positive(self.get("trainer.num_nodes")) or 1

    def is_range(self) -> bool:
        """Whether the number of workers is `{min, max}`."""
        return isinstance(self.get(WORKERS), Mapping)

    def assign_fewest(self, fewest: Any, description: Description) -> None:
        """Write `{min, max}`, where `max` is the workers of all nodes; with `fewest` None, the fixed number again."""
        on_each = self.workers(description)
        if fewest is None:
            if self.is_range():
                self.drop(WORKERS)
            return
        self.put("trainer.devices", on_each)
        most = on_each * self._nodes() if isinstance(on_each, int) else on_each
        self.put(WORKERS, {"min": fewest, "max": most})

    def is_simulated(self) -> bool:
        """Whether one process simulates all workers."""
        return bool(self.get(f"{STRATEGY}.host") == VIRTUAL)

    def make_simulated(self, workers: Any) -> None:
        """Let one process simulate `workers` workers, with the config's clock, or with 0.1 s per gradient."""
        self.put(f"{STRATEGY}.host", VIRTUAL)
        self.put(f"{STRATEGY}.workers", workers)
        self.put("trainer.devices", 1)
        if self.get(CLOCK) is None:
            self.put(CLOCK, {"gradient_s": USUAL_GRADIENT_S})

    def _strategy_of(self) -> str:
        """The bare name of the strategy's class."""
        name = self._named("trainer.strategy").name or ""
        return classes.ALIASES.get(name, name).rpartition(".")[2]

    def recorded_run(self) -> str:
        """The id of the run whose recorded times the clock uses; "" if it uses none."""
        return str(self.get(f"{CLOCK}.gradient_s.run") or "")

    def take_clock(self, times: Mapping[str, Any]) -> None:
        """Write `gradient_s` of `times` into the clock, and `server_s` where there is a server; without them the usual
        number and no server time."""
        self.put(f"{CLOCK}.gradient_s", times.get("gradient_s", USUAL_GRADIENT_S))
        self.drop(f"{CLOCK}.server_s")
        if "server_s" in times and self._strategy_of() == "AsyncPS":
            self.put(f"{CLOCK}.server_s", times["server_s"])

    def make_real(self, workers: Any) -> None:
        """Make workers processes again, each on its own device."""
        for name in ("host", "clock", "workers"):
            self.drop(f"{STRATEGY}.{name}")
        self.put("trainer.devices", workers)

    def budget(self) -> Budget:
        """The first budget that the config sets of time, updates, epochs; DEFAULT_EPOCHS if it sets none."""
        if (time := self.get("trainer.max_time")) is not None:
            minutes = _minutes(time)
            return Budget("time", time if minutes is None else minutes)
        if (steps := self.get("trainer.max_steps")) not in (None, -1):
            return Budget("updates", steps)
        epochs = self.get("trainer.max_epochs")
        return Budget("epochs", DEFAULT_EPOCHS if epochs is None else epochs)

    def assign_budget(self, budget: Budget) -> None:
        """Exactly one budget: the others are removed, because the first one reached would end the run."""
        for key in BUDGET_KEYS.values():
            self.drop(f"trainer.{key}")
        timed = budget.kind == "time" and isinstance(budget.value, int | float) and budget.value > 0
        self.put(f"trainer.{BUDGET_KEYS[budget.kind]}", _clock(budget.value) if timed else budget.value)

    def suggested_name(self, description: Description) -> str:
        """A name made of model, rule or strategy, and workers: `pixelcnn-bounded-x2`, with `-virtual` if one process
        simulates them. It has only characters that a
        cell's name may have."""
        strategy = Experiment(self.config, description).strategy
        model = self.chosen_class("model", "models", description)
        rule = (strategy.words or "").partition(",")[0]
        named_by_rule = strategy.name == "AsyncPS" and rule not in ("", "async")
        words = [model.name if model else "experiment", rule if named_by_rule else strategy.name]
        if strategy.workers > 1:
            words.append(f"x{strategy.workers}")
        if strategy.is_simulated:
            words.append("virtual")
        return "-".join(re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-") for word in words)


def _minutes(value: Any) -> float | None:
    """The minutes in Lightning's `DD:HH:MM:SS`, or in a mapping with arguments of `datetime.timedelta`; else None."""
    if isinstance(value, str) and re.fullmatch(r"\d+:\d+:\d+:\d+", value):
        days, hours, minutes, seconds = (int(part) for part in value.split(":"))
        return days * 1440 + hours * 60 + minutes + seconds / 60
    if isinstance(value, Mapping):
        sizes = {"days": 1440, "hours": 60, "minutes": 1, "seconds": 1 / 60}
        return float(sum(sizes[key] * value[key] for key in sizes if isinstance(value.get(key), int | float))) or None
    return None


def _clock(minutes: float) -> str:
    seconds = max(1, round(minutes * 60))
    days, seconds = divmod(seconds, 86400)
    hours, seconds = divmod(seconds, 3600)
    return f"{days:02d}:{hours:02d}:{seconds // 60:02d}:{seconds % 60:02d}"


def blank(description: Description, configs: Sequence[Config] = ()) -> Config:
    """What a new experiment starts from, with one process and five epochs; `configs`: the notebook's experiments.

    It has model, data and optimizer of the last experiment whose model is the user's; without any experiment the user's
    first model, of those with data if there are any, and its data; else a small generative model on data that ships.
    """
    draft = ConfigDraft({"seed_everything": 1, "trainer": {"strategy": "auto", "devices": 1, "max_epochs": 5}})
    own = next((config for config in reversed(configs) if _is_own(config, description)), None)
    if own is not None:
        draft.config.update({key: copy.deepcopy(own[key]) for key in TAKEN_ALONG if key in own})
        return draft.config
    models = [] if configs else [info for info in description.models if info.source == "user"]
    model = next((info for info in models if data_for(info, configs, description)), next(iter(models), None))
    model = model or description.find("models", "PixelCNN") or description.models[0]
    data = data_for(model, configs, description) or description.find("data", "Digits") or description.data[0]
    draft.choose("model", model, "models", description)
    draft.choose("data", data, "data", description)
    for name, key in (("batch_size", "data.init_args.batch_size"),):
        field = next((field for field in data.fields if field.name == name), None)
        if field is not None and field.default is not None:
            draft.put(key, field.default)
    if not model.own_optimizer:
        draft.put("optimizer", copy.deepcopy(description.default_optimizer))
    return draft.config


def _is_own(config: Config, description: Description) -> bool:
    model = ConfigDraft(config).chosen_class("model", "models", description)
    return model is not None and model.source == "user"


def data_for(model: ClassInfo, configs: Sequence[Config], description: Description) -> ClassInfo | None:
    """The data that goes with a model of the user's: that of the last of `configs` with this model; else that of its
    module, or the only one of its package. None for other models, and where there is none."""
    if model.source != "user":
        return None
    for draft in map(ConfigDraft, reversed(configs)):
        used = draft.chosen_class("data", "data", description)
        if used is not None and draft.chosen_class("model", "models", description) == model:
            return used
    own = [info for info in description.data if info.source == "user"]
    module = model.class_path.rpartition(".")[0]
    beside = [info for info in own if info.class_path.rpartition(".")[0] == module]
    within = [info for info in own if info.class_path.partition(".")[0] == module.partition(".")[0]]
    return beside[0] if beside else within[0] if len(within) == 1 else None
