"""What a rule or a damping declares for code that cannot import it: the browser, forms, validation, presets.

`scalebook describe` carries these values in its JSON, also for a user's own classes.
"""

import inspect
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, NamedTuple, Self

WORKERS: Final = "workers"


class Term(NamedTuple):
    """One term of a number of gradients: `+ average`, `- backup_workers`."""

    sign: Literal[1, -1]
    word: str


def terms(formula: str) -> Iterator[Term]:
    """The terms of a sum such as `workers - backup_workers`: each a number, `workers`, an argument's name, or a product
    of these (`spared*doubled`)."""
    sign: Literal[1, -1] = 1
    for word in formula.split():
        if word in ("+", "-"):
            sign = 1 if word == "+" else -1
        else:
            yield Term(sign, word)


def count(formula: str, workers: int, settings: Mapping[str, Any]) -> int:
    """The value of `formula`; an argument that `settings` lacks counts as 0."""

    def value(word: str) -> int:
        return int(word) if word.isdecimal() else workers if word == WORKERS else int(settings.get(word, 0))

    return sum(sign * math.prod(map(value, product.split("*"))) for sign, product in terms(formula))


def refuse_unknown(kind: type, fact: str, formula: str) -> None:
    """TypeError if the sum names something that is not an argument of the class's constructor."""
    names = [*list(inspect.signature(kind).parameters), WORKERS]
    for word in (word for _, product in terms(formula) for word in product.split("*")):
        if not word.isdecimal() and word not in names:
            raise TypeError(
                f"{kind.__name__}.{fact} names {word!r}, which is neither one of its arguments nor `{WORKERS}`."
            )


def derive_facts(kind: type, derived: Mapping[str, bool]) -> None:
    """Set the facts that follow from a class's other declarations. TypeError if its body says otherwise."""
    for fact, value in derived.items():
        if vars(kind).get(fact, value) != value:
            raise TypeError(
                f"{kind.__name__}.{fact} follows from the class's other declarations: it is {value}. Leave it out."
            )
        setattr(kind, fact, value)


@dataclass(frozen=True)
class _Facts:
    name: str = ""
    words: str | None = None

    @classmethod
    def of(cls, kind: type) -> Self:
        """The facts that a class declares."""
        return cls(**{field.name: getattr(kind, field.name) for field in fields(cls)})


@dataclass(frozen=True)
class RuleFacts(_Facts):
    """Facts of a rule; each is documented at `Rule`. The defaults are those of a rule that applies every gradient on
    arrival."""

    gradients_per_update: str = "1"
    computed_per_update: str = ""
    synchronous: bool = False
    gathers: bool = False
    waits: bool = False
    refuses: bool = False

    def averaged(self, workers: int, settings: Mapping[str, Any]) -> int:
        """Pushes averaged in one update, with these arguments: 1 or more."""
        return max(1, count(self.gradients_per_update, workers, settings))

    def computed(self, workers: int, settings: Mapping[str, Any]) -> int:
        """Pushes computed for each update, including those dropped on purpose: 1 or more."""
        return max(1, count(self.computed_per_update or self.gradients_per_update, workers, settings))


@dataclass(frozen=True)
class DampingFacts(_Facts):
    """Facts of a damping; each is documented at `Damping`. The defaults are those of one that does nothing."""

    drops: bool = False
    scales: bool = False
    compensates: bool = False


@dataclass(frozen=True)
class LocalFacts(_Facts):
    """Facts of a `Local`, where each is documented. The defaults are those of one under which every gradient is
    pushed."""

    steps: bool = False
    sums: bool = False
    keeps: bool = False


@dataclass(frozen=True)
class CodecFacts(_Facts):
    """Facts of a codec; each is documented at `Codec`. The defaults are those of one that sends whole parameters."""

    exact: bool = False
    whole: bool = True
