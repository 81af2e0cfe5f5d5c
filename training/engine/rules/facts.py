"""What a rule or a damping declares for those who cannot run it: the browser, forms, validation, presets.

`scalebook describe` carries these values in its JSON, of a user's own classes too.
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
    """Of a sum such as `workers - backup_workers`: each a number, `workers`, an argument's name, or a product of them
    (`spared*doubled`)."""
    sign: Literal[1, -1] = 1
    for word in formula.split():
        if word in ("+", "-"):
            sign = 1 if word == "+" else -1
        else:
            yield Term(sign, word)


def count(formula: str, workers: int, settings: Mapping[str, Any]) -> int:
    """The number that `formula` stands for; an argument that `settings` lacks counts as 0."""

    def value(word: str) -> int:
        return int(word) if word.isdecimal() else workers if word == WORKERS else int(settings.get(word, 0))

    return sum(sign * math.prod(map(value, product.split("*"))) for sign, product in terms(formula))


def refuse_unknown(kind: type, fact: str, formula: str) -> None:
    """TypeError where the sum names what is no argument of the class's constructor."""
    names = [*list(inspect.signature(kind).parameters), WORKERS]
    for word in (word for _, product in terms(formula) for word in product.split("*")):
        if not word.isdecimal() and word not in names:
            raise TypeError(
                f"{kind.__name__}.{fact} names {word!r}, which is not an argument of it and not `{WORKERS}`."
            )


def settle(kind: type, derived: Mapping[str, bool]) -> None:
    """Set what follows from a class's other declarations. TypeError where its body says otherwise."""
    for fact, value in derived.items():
        if vars(kind).get(fact, value) != value:
            raise TypeError(f"{kind.__name__}.{fact} is {value} by what else the class declares. Leave it out.")
        setattr(kind, fact, value)


@dataclass(frozen=True)
class _Facts:
    name: str = ""
    words: str | None = None

    @classmethod
    def of(cls, kind: type) -> Self:
        """As the class declares them."""
        return cls(**{field.name: getattr(kind, field.name) for field in fields(cls)})


@dataclass(frozen=True)
class RuleFacts(_Facts):
    """Of a rule; each is documented at `Rule`. The defaults are those of one that applies every gradient on arrival."""

    gradients_per_update: str = "1"
    computed_per_update: str = ""
    synchronous: bool = False
    gathers: bool = False
    waits: bool = False
    refuses: bool = False

    def averaged(self, workers: int, settings: Mapping[str, Any]) -> int:
        """Pushes whose mean is an update, with these arguments: 1 or more."""
        return max(1, count(self.gradients_per_update, workers, settings))

    def computed(self, workers: int, settings: Mapping[str, Any]) -> int:
        """Pushes that are computed for each update, those in vain included: 1 or more."""
        return max(1, count(self.computed_per_update or self.gradients_per_update, workers, settings))


@dataclass(frozen=True)
class DampingFacts(_Facts):
    """Of a damping; each is documented at `Damping`. The defaults are those of one that does nothing."""

    drops: bool = False
    scales: bool = False
    compensates: bool = False


@dataclass(frozen=True)
class LocalFacts(_Facts):
    """Of what says when workers communicate; each is documented at `Local`. The defaults are those of one that lets
    them push every gradient."""

    steps: bool = False
    sums: bool = False
    keeps: bool = False


@dataclass(frozen=True)
class CodecFacts(_Facts):
    """Of a codec; each is documented at `Codec`. The defaults are those of one that sends whole parameters."""

    exact: bool = False
    whole: bool = True
