"""A user's mistake, reported with its key and a fix."""

from dataclasses import dataclass, replace
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

    `code` is the kind of mistake, short and stable (`unknown-class`), `key` the dotted path of the wrong value
    (`trainer.devices`), `fix` a full sentence that says what to write. A warning is a setting without effect: the
    config can run.
    """

    code: str
    key: str
    message: str
    fix: str
    severity: Literal["error", "warning"] = "error"

    def moved_to(self, key: str, before: str = "") -> "Problem":
        """The same mistake at another key, with words before its message."""
        return replace(self, key=key, message=before + self.message)

    def __str__(self) -> str:
        key = one_line(self.key, LONGEST_KEY)
        return f"{key}: {one_line(self.message.rstrip('.'))}. {one_line(self.fix)}".rstrip()


class ConfigError(ValueError):
    """Raised before anything starts; the command line prints it as one line and exits with code 2."""

    def __init__(self, key: str, message: str, fix: str, code: str = "invalid") -> None:
        self.problem = Problem(code, key, message, fix)
        super().__init__(str(self.problem))

    @classmethod
    def of(cls, problem: Problem) -> "ConfigError":
        """The error that says this."""
        return cls(problem.key, problem.message, problem.fix, problem.code)

    def __reduce__(self) -> tuple[type["ConfigError"], tuple[str, str, str, str]]:
        return type(self), (self.problem.key, self.problem.message, self.problem.fix, self.problem.code)
