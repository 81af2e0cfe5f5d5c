"""Takes values out of a mapping that a person wrote, and keeps every mistake."""

import difflib
from collections.abc import Mapping
from typing import Any, Final

from scalebook.training.base import Problem
from scalebook.training.experiments.fields import quoted_value

MOST: Final = 100_000
"""Most trials, or whatever else is counted."""
LARGEST: Final = 1e300


class Body:
    """Takes values out of a body. What is wrong goes to `problems`, and the default is given instead."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.raw = raw
        self.problems: list[Problem] = []

    def wrong(self, code: str, key: str, message: str, fix: str) -> None:
        self.problems.append(Problem(code, key, message, fix))

    def whole_number(self, key: str, default: int, most: int = MOST) -> int:
        value = self.raw.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            self.wrong(
                "out-of-bounds",
                key,
                f"is {quoted_value(value)}",
                f"Use a whole number from 1 to {most}, or remove it.",
            )
            return default
        return value

    def above_zero(self, key: str) -> float | None:
        value = self.raw.get(key)
        if value is None or (number(value) and value > 0):
            return value
        self.wrong("out-of-bounds", key, f"is {quoted_value(value)}", "Use a number above 0, or remove it.")
        return None

    def word(self, key: str, words: tuple[str, ...], default: str) -> str:
        value = self.raw.get(key)
        value = default if value is None else value
        if value not in words:
            self.wrong("unknown-value", key, f"is {quoted_value(value)}", one_of(value, words))
            return default
        return str(value)

    def flag_or(self, key: str, word: str) -> bool | str:
        value = self.raw.get(key)
        if value is None or isinstance(value, bool) or value == word:
            return value or False
        self.wrong("wrong-type", key, f"is {quoted_value(value)}", f"Use true, false or {word}.")
        return False

    def text(self, key: str) -> str | None:
        value = self.raw.get(key)
        if value is None or (isinstance(value, str) and value.strip()):
            return value
        self.wrong("wrong-type", key, f"is {quoted_value(value)}", "Use a string, or remove it.")
        return None


def one_of(word: Any, words: tuple[str, ...]) -> str:
    """The remedy if `word` is none of a few words."""
    close = difflib.get_close_matches(str(word), words, 1)
    return f"Did you mean `{close[0]}`?" if close else f"Use one of {', '.join(words)}."


def near(word: str, names: tuple[str, ...]) -> str:
    """The remedy if `word` is none of the names that there are."""
    close = difflib.get_close_matches(word, names, 1)
    return f"Did you mean `{close[0]}`?" if close else f"Known: {', '.join(names)}."


def number(value: Any) -> bool:
    """Whether `value` is a number that a float can hold; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST < value < LARGEST
