"""Classes as a config names them: `Name`, or `{class_path: Name, init_args: {...}}`, or a strategy's own word."""

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from scalebook.training.experiments.description import ClassInfo, Description, Field, Group

GROUP_OF_KEY: Final[dict[str, Group]] = {
    "model": "models",
    "data": "data",
    "optimizer": "optimizers",
    "lr_scheduler": "lr_schedulers",
}
"""Top keys of a config whose value names a class, with the group to find it in."""
ALIASES: Final = {
    "async_ps": "AsyncPS", "peers": "Peers", "model_parallel": "ModelParallel", "DDP": "ddp",
    "lightning.pytorch.strategies.DDPStrategy": "ddp",
}  # fmt: skip
"""Other names of our strategies: Lightning's, and that of the class which ours replaces."""
ENGINE_STRATEGIES: Final = ("AsyncPS", "Peers")
"""Strategies with `workers`, `host` and `clock`, whose workers the engine starts and connects."""
MOST_STRANGERS: Final = 20
LONGEST_NAME: Final = 100
"""Characters of the longest name that is compared; a longer one is far from any."""


@dataclass(frozen=True)
class NamedClass:
    """A class as written: `name` is a path, a short name or a strategy's word; `args` is None if not a mapping."""

    name: str | None
    args: Mapping[str, Any] | None
    extra: tuple[str, ...] = ()
    """Keys beside class_path and init_args without a meaning (dict_kwargs is known to the parser)."""

    def info(self, group: Group, description: Description) -> ClassInfo | None:
        if self.name is None:
            return None
        return description.find(group, ALIASES.get(self.name, self.name))


def read_class(value: Any) -> NamedClass:
    """Read a config's value for a class; a value of another shape gives a Named without a name."""
    if isinstance(value, str):
        return NamedClass(value, {})
    if not isinstance(value, Mapping) or not isinstance(value.get("class_path"), str):
        return NamedClass(None, None)
    args = value.get("init_args")
    extra = tuple(str(key) for key in value if key not in ("class_path", "init_args", "dict_kwargs"))
    arguments = {} if args is None else args if isinstance(args, Mapping) else None
    return NamedClass(value["class_path"], arguments, extra)


def mapping(value: Any) -> Mapping[str, Any]:
    """`value` where it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def positive(value: Any) -> int | None:
    """`value` where it is a whole number above 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def few_strangers(raw: Mapping[Any, Any], names: Collection[Any]) -> tuple[dict[Any, Any], int]:
    """`raw` with its first `MOST_STRANGERS` unknown keys, and how many more there were. Each costs 1 ms to answer."""
    strangers = [key for key in raw if key not in names]
    left_out = set(strangers[MOST_STRANGERS:])
    return {key: value for key, value in raw.items() if key not in left_out}, len(left_out)


def within(path: str, packages: Sequence[str]) -> bool:
    """Whether a dotted name is in one of `packages`."""
    return any(path.startswith(f"{package}.") for package in packages)


def suggestion(wrong: str, words: Iterable[str]) -> str:
    """`Did you mean ...?` for the closest known word, or all the known words where none is close."""
    words = list(words)
    short = wrong.rsplit(".", 1)[-1]
    for candidate in (wrong[-LONGEST_NAME:], short[:LONGEST_NAME]):
        lower = {word.lower(): word for word in words}
        if close := difflib.get_close_matches(candidate.lower(), lower, n=1, cutoff=0.6):
            return f"Did you mean `{lower[close[0]]}`?"
    return f"Known: {', '.join(sorted(words))}." if words else ""


@dataclass(frozen=True)
class ChosenClass:
    """One of a field's classes, with the arguments that the config gives it."""

    info: ClassInfo
    args: Mapping[str, Any]

    @property
    def word(self) -> str:
        """Its bare name, or its class's if it has none."""
        return self.info.config_value or self.info.name

    def settings(self) -> dict[str, Any]:
        """Every argument, the defaults included."""
        return {**{field.name: field.default for field in self.info.fields}, **self.args}

    def counts(self) -> dict[str, int]:
        """The arguments that are whole numbers, or booleans, as 1 or 0; others may be anything while somebody types."""
        return {name: int(value) for name, value in self.settings().items() if isinstance(value, int)}

    def non_defaults(self) -> dict[str, Any]:
        """The arguments that differ from the class's defaults."""
        defaults = {field.name: field.default for field in self.info.fields if not field.required}
        return {name: value for name, value in self.args.items() if not _same(value, defaults.get(name, _NOTHING))}


def choose_class(value: Any, field: Field) -> ChosenClass | None:
    """The class that `value` names; None if it is none of the field's, or its arguments are no mapping."""
    reference = read_class(value)
    info = None if reference.name is None else field.option(reference.name)
    if info is None or reference.args is None or (reference.name == info.config_value and isinstance(value, Mapping)):
        return None  # a bare name is no class_path
    return ChosenClass(info, reference.args)


def shortest_form(value: Any, field: Field) -> Any:
    """The shortest spelling of `value`: the bare name if all is at its default. What names no class stays."""
    choice = choose_class(value, field)
    if choice is None or (isinstance(value, Mapping) and set(value) - {"class_path", "init_args"}):
        return value
    own = choice.non_defaults()
    if not own and choice.info.config_value is not None:
        return choice.info.config_value
    return {"class_path": choice.info.class_path, **({"init_args": own} if own else {})}


_NOTHING = object()


def _same(left: Any, right: Any) -> bool:
    """0 and 0.0 are one number; True and 1 are not one value."""
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)


def in_words(choice: ChosenClass) -> str:
    """Its name and the settings that are not at their default: `sync, 1 backup`. "" for what does nothing."""
    facts = choice.info.rule or choice.info.damping or choice.info.codec or choice.info.local
    head = choice.word.replace("_", " ") if facts is None or facts.words is None else facts.words
    said = [name for name in choice.settings() if f"{{{name}}}" in head]
    own = [_phrase(name, value) for name, value in choice.non_defaults().items() if name not in said]
    return ", ".join(part for part in (_filled(head, choice.settings()), *own) if part)


def _filled(head: str, settings: dict[str, Any]) -> str:
    """`head` with each `{argument}` replaced by its value. Other braces stay: the words may be a user's."""
    for name, value in settings.items():
        head = head.replace(f"{{{name}}}", str(value))
    return head


def _phrase(name: str, value: Any) -> str:
    """`backup_workers`, 2 -> `2 backups`; `adaptive`, true -> `adaptive`; `limit`, 4 -> `limit 4`."""
    plain = name.replace("_", " ")
    if plain.endswith(" workers"):
        return f"{value} {plain.removesuffix(' workers')}{'' if value == 1 else 's'}"
    if isinstance(value, bool):
        return plain if value else f"not {plain}"
    return f"{plain} {value:g}" if isinstance(value, float) else f"{plain} {value}"
