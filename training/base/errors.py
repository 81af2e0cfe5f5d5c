"""A user's mistake, reported with its key and a remedy."""

from dataclasses import dataclass
from typing import Final, Literal

LONGEST: Final = 1000
LONGEST_KEY: Final = 200
"""The longest message, and key in it, in characters; both may repeat what a user wrote."""


def one_line(text: str, most: int = LONGEST) -> str:
    """`text` on one line that a terminal can show: line ends become spaces, other control characters are escaped, and a
    long text is cut."""
    text = text if len(text) <= most else f"{text[: most - 3]}..."
    if text.isprintable():
        return text
    text = " ".join(text.splitlines())
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


@dataclass(frozen=True)
class Problem:
    """One mistake in a config or a notebook.

    `key` is the dotted path of the wrong value (`trainer.devices`), `remedy` a full sentence that says what to write.
    A warning is a setting without effect: the config can run.
    """

    key: str
    message: str
    remedy: str
    severity: Literal["error", "warning"] = "error"

    @classmethod
    def said_by(cls, error: ValueError) -> "Problem":
        """A Problem from a ValueError of the engine, which knows no configs, with a text of the form `key: message.
        Remedy.`"""
        key, _, rest = str(error).partition(": ")
        message, _, remedy = rest.rpartition(". ")
        return cls(key, message, remedy)

    def __str__(self) -> str:
        key = one_line(self.key, LONGEST_KEY)
        return f"{key}: {one_line(self.message.rstrip('.'))}. {one_line(self.remedy)}".rstrip()


class ConfigError(ValueError):
    """Raised before anything starts; the command line prints it as one line and exits with code 2."""

    def __init__(self, key: str, message: str, remedy: str) -> None:
        self.problem = Problem(key, message, remedy)
        super().__init__(str(self.problem))

    @classmethod
    def said_by(cls, error: ValueError) -> "ConfigError":
        """Like `Problem.said_by`."""
        problem = Problem.said_by(error)
        return cls(problem.key, problem.message, problem.remedy)

    def __reduce__(self) -> tuple[type["ConfigError"], tuple[str, str, str]]:
        return type(self), (self.problem.key, self.problem.message, self.problem.remedy)
