"""The `space:` of a search: from YAML to dimensions, with every mistake."""

import difflib
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from scalebook.training.base import ConfigError, Problem
from scalebook.training.base.files import yaml_flow
from scalebook.training.experiments.fields import quoted_value
from scalebook.training.experiments.lr_scaling import RULES
from scalebook.training.experiments.paths import plain
from scalebook.training.experiments.raw_body import MOST, number
from scalebook.training.experiments.search.space import KINDS, RANGES, Dimension, Kind, power_of_two
from scalebook.training.experiments.search.types import RateRule

RATE_KEYS: Final = ("per", "rule", "warmup_epochs")
MORE_KEYS: Final[dict[Kind, tuple[str, ...]]] = {
    "uniform": ("points",),
    "log_uniform": ("points",),
    "int": ("log", "step", "points"),
}
"""Keys of a dimension beside its kind; a learning rate also has `RATE_KEYS`."""
LARGEST_WHOLE: Final = 2**53
"""Above it neighbours are one float, and samplers count in floats."""
MOST_DIMENSIONS: Final = 200
EXAMPLE: Final = "For example, use batch_size: {powers_of_two: [16, 256]}."


@dataclass
class ReadSpace:
    """A space as it was read. `canonical` has the name of each dimension by the way it is written."""

    dimensions: tuple[Dimension, ...] = ()
    rate: RateRule | None = None
    problems: list[Problem] = field(default_factory=list)
    canonical: dict[str, str] = field(default_factory=dict)

    def key(self, name: str) -> str:
        """`space.` and `name` as it is written, for a message and for its line."""
        return f"space.{next((written for written, same in self.canonical.items() if same == name), name)}"


def read_space(raw: Any) -> ReadSpace:
    """Every dimension that can be read; what is wrong with the others stands in `problems`."""
    space = ReadSpace()
    if not isinstance(raw, Mapping) or not raw:
        what = "is missing" if raw is None else f"is {quoted_value(raw)}"
        space.problems.append(Problem("wrong-type", "space", what, EXAMPLE))
        return space
    if len(raw) > MOST_DIMENSIONS:
        what = f"has {len(raw):,} dimensions, more than {MOST_DIMENSIONS}"
        space.problems.append(Problem("too-many", "space", what, "Search only over the few dimensions that matter."))
        return space
    dimensions: dict[str, Dimension] = {}
    for written, value in raw.items():
        name = plain(str(written))
        if name in dimensions:
            space.problems.append(
                Problem("repeated", f"space.{written}", f"sets {name} a second time", "Remove one of them.")
            )
            continue
        space.canonical[str(written)] = name
        try:
            dimension = read_dimension(name, value)
            if name == "learning_rate" and isinstance(value, Mapping):
                space.rate = _rate(value)
        except ConfigError as error:
            problem = error.problem
            key = f"space.{written}" + problem.key.removeprefix(name)
            space.problems.append(problem.moved_to(key))
        else:
            dimensions[name] = dimension
    space.dimensions = tuple(dimensions.values())
    return space


def read_dimension(name: str, raw: Any) -> Dimension:
    """The dimension that `raw` describes; ConfigError, its key `name` or one below it."""
    kinds = [key for key in raw if key in KINDS] if isinstance(raw, Mapping) else []
    if not isinstance(raw, Mapping) or len(kinds) != 1:
        what = f"has {len(kinds)} kinds" if len(kinds) > 1 else f"is {quoted_value(raw)}, without a kind of range"
        raise ConfigError(
            name, what, _near_kind(raw) or f"Use one of {', '.join(KINDS)}, followed by its values.", "out-of-bounds"
        )
    kind: Kind = next(candidate for candidate in KINDS if candidate == kinds[0])
    more = (*MORE_KEYS.get(kind, ()), *(RATE_KEYS if name == "learning_rate" else ()))
    for key in raw:
        if key != kind and key not in more:
            near = difflib.get_close_matches(str(key), more, 1)
            fix = f"Did you mean `{near[0]}`?" if near else f"Keys for {kind}: {', '.join(more) or 'none'}."
            raise ConfigError(f"{name}.{key}", f"has no effect with {kind}", fix, "no-effect")
    return _range(name, kind, raw) if kind in RANGES else _choices(name, kind, raw[kind])


def _range(name: str, kind: Kind, raw: Mapping[str, Any]) -> Dimension:
    ends = raw[kind]
    whole = kind in ("int", "powers_of_two")
    if not isinstance(ends, list) or len(ends) != 2 or not all(number(end) for end in ends):
        what = "two whole numbers" if whole else "two numbers"
        raise ConfigError(
            name,
            f"has {quoted_value(ends)} instead of a range",
            f"Use {what}, {{{kind}: [LOWEST, HIGHEST]}}.",
            "wrong-type",
        )
    low, high = ends
    if low > high:
        raise ConfigError(
            name, f"is an empty range, because {low} is above {high}", f"Set {kind}: [{high}, {low}].", "out-of-bounds"
        )
    if kind == "powers_of_two":
        _require_powers(name, low, high)
    if kind == "int" and not (low == int(low) and high == int(high)):
        raise ConfigError(
            name,
            f"has ends that are not whole numbers: {low} and {high}",
            "Use whole numbers, or uniform.",
            "wrong-type",
        )
    log = _flag(name, raw, "log")
    if (kind == "log_uniform" or log) and low <= 0:
        raise ConfigError(
            name, f"starts at {low}, which has no logarithm", "Start above 0, or use uniform.", "out-of-bounds"
        )
    step = _count(name, raw, "step", 1)
    if log and step != 1:
        raise ConfigError(f"{name}.step", "does not work with log", "Remove one of them.", "contradiction")
    points = _count(name, raw, "points", 2, MOST) if raw.get("points") is not None else None
    if whole and max(-low, high) > LARGEST_WHOLE:
        what = f"reaches {quoted_value(max((low, high), key=abs))}"
        raise ConfigError(
            name, what, f"Use whole numbers up to {LARGEST_WHOLE}, which a study stores exactly.", "out-of-bounds"
        )
    exact = int if whole else float
    return Dimension(name, kind, exact(low), exact(high), log=log, step=step, points=points)


def _require_powers(name: str, low: Any, high: Any) -> None:
    for end in (low, high):
        if not power_of_two(end):
            near = [2 ** max(0, math.floor(math.log2(end))), 2 ** max(0, math.ceil(math.log2(end)))] if end > 0 else [1]
            written = " or ".join(str(power) for power in dict.fromkeys(near))
            raise ConfigError(
                name, f"{end} is not a power of two", f"Use {written}, or int: [{low}, {high}].", "out-of-bounds"
            )


def _choices(name: str, kind: Kind, raw: Any) -> Dimension:
    if not isinstance(raw, list) or not raw:
        raise ConfigError(
            name,
            f"has {quoted_value(raw)} instead of a list for {kind}",
            f"Use a list, {{{kind}: [1, 2]}}.",
            "wrong-type",
        )
    if kind == "grid":
        if not all(number(value) for value in raw):
            raise ConfigError(
                name, "has a grid with values that are not numbers", "Use numbers, or values: [...].", "wrong-type"
            )
        raw = sorted(raw)
    texts = [yaml_flow.flow(value) for value in raw]
    twice = [text for text, times in Counter(texts).items() if times > 1]
    if twice or (kind == "grid" and len(set(raw)) < len(raw)):
        raise ConfigError(name, f"contains {(twice or texts)[0]} twice", "List each value once.", "repeated")
    return Dimension(name, kind, choices=tuple(raw))


def _rate(raw: Mapping[str, Any]) -> RateRule | None:
    name = "learning_rate"
    rule = raw.get("rule")
    if rule is None:
        for key in ("per", "warmup_epochs"):
            if raw.get(key) is not None:
                raise ConfigError(
                    f"{name}.{key}", "has no effect without a rule", "Set rule: linear, sqrt or none.", "no-effect"
                )
        return None
    known_rule = next((candidate for candidate in RULES if candidate == rule), None)
    if known_rule is None:
        raise ConfigError(
            f"{name}.rule", f"is {quoted_value(rule)}", f"Use one of {', '.join(RULES)}.", "out-of-bounds"
        )
    warmup = raw.get("warmup_epochs", 0.0)
    if not number(warmup) or warmup < 0:
        raise ConfigError(
            f"{name}.warmup_epochs",
            f"is {quoted_value(warmup)}",
            "Use a number of epochs, or 0 for no warm-up.",
            "out-of-bounds",
        )
    return RateRule(known_rule, _count(name, raw, "per", 256), float(warmup))


def _flag(name: str, raw: Mapping[str, Any], key: str) -> bool:
    value = raw.get(key)
    if value is not None and not isinstance(value, bool):
        raise ConfigError(f"{name}.{key}", f"is {quoted_value(value)}", "Use true or false.", "wrong-type")
    return value is True


def _count(name: str, raw: Mapping[str, Any], key: str, default: int, most: int = LARGEST_WHOLE) -> int:
    value = raw.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        end = "of at least 1" if most == LARGEST_WHOLE else f"from 1 to {most}"
        raise ConfigError(f"{name}.{key}", f"is {quoted_value(value)}", f"Use a whole number {end}.", "out-of-bounds")
    return value


def _near_kind(raw: Any) -> str | None:
    """What to write for a list, a number, or a misspelled kind."""
    if isinstance(raw, list):
        return f"Set {{values: {yaml_flow.flow(raw)}}}."
    keys = list(raw) if isinstance(raw, Mapping) else []
    close = [match for key in keys for match in difflib.get_close_matches(str(key), KINDS, 1)]
    return f"Did you mean `{close[0]}`?" if len(close) == 1 else None
