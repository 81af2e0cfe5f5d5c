"""Classes as a config names them: `Name`, or `{class_path: Name, init_args: {...}}`, or a strategy's own word."""

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from scalebook.training.config.description import ClassInfo, Description, Group

GROUP_OF_KEY: Final[dict[str, Group]] = {
    "model": "models",
    "data": "data",
    "optimizer": "optimizers",
    "lr_scheduler": "lr_schedulers",
}
"""Top keys of a config whose value names a class, with the group to find it in."""

ALIASES: Final = {"async_ps": "AsyncPS", "DDP": "ddp", "lightning.pytorch.strategies.DDPStrategy": "ddp"}
"""Further names of strategies of ours: Lightning's, and that of the class which ours is in the place of."""


MOST_STRANGERS: Final = 20
LONGEST_NAME: Final = 100
"""Characters; what is compared with a longer one is far from it anyway."""


@dataclass(frozen=True)
class Named:
    """A class as written: `name` is a path, a short name or a strategy's word; `args` is None if not a mapping."""

    name: str | None
    args: Mapping[str, Any] | None
    extra: tuple[str, ...] = ()
    """Keys beside class_path and init_args, which mean nothing (dict_kwargs is known to the parser)."""

    def info(self, group: Group, description: Description) -> ClassInfo | None:
        if self.name is None:
            return None
        return description.find(group, ALIASES.get(self.name, self.name))


def named(value: Any) -> Named:
    """Read a config's value for a class; a value of another shape gives a Named without a name."""
    if isinstance(value, str):
        return Named(value, {})
    if not isinstance(value, Mapping) or not isinstance(value.get("class_path"), str):
        return Named(None, None)
    args = value.get("init_args")
    extra = tuple(str(key) for key in value if key not in ("class_path", "init_args", "dict_kwargs"))
    given = {} if args is None else args if isinstance(args, Mapping) else None
    return Named(value["class_path"], given, extra)


def mapping(value: Any) -> Mapping[str, Any]:
    """`value` where it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def few_strangers(raw: Mapping[Any, Any], known: Collection[Any]) -> tuple[dict[Any, Any], int]:
    """`raw` with its first `MOST_STRANGERS` unknown keys, and how many more there were. Each costs 1 ms to answer."""
    strangers = [key for key in raw if key not in known]
    left_out = set(strangers[MOST_STRANGERS:])
    return {key: value for key, value in raw.items() if key not in left_out}, len(left_out)


def within(path: str, packages: Sequence[str]) -> bool:
    """Whether a dotted name is in one of `packages`."""
    return any(path.startswith(f"{package}.") for package in packages)


def suggestion(wrong: str, known: Iterable[str]) -> str:
    """`Did you mean ...?` for the closest known word, or all the known words where none is close."""
    known = list(known)
    short = wrong.rsplit(".", 1)[-1]
    for candidate in (wrong[-LONGEST_NAME:], short[:LONGEST_NAME]):
        lower = {word.lower(): word for word in known}
        if close := difflib.get_close_matches(candidate.lower(), lower, n=1, cutoff=0.6):
            return f"Did you mean `{lower[close[0]]}`?"
    return f"Known: {', '.join(sorted(known))}." if known else ""
