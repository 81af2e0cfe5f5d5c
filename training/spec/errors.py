"""A mistake in what the user wrote, said so that it can be mended."""

from dataclasses import dataclass
from typing import Literal


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

    def __str__(self) -> str:
        return f"{self.key}: {self.message.rstrip('.')}. {self.remedy}".rstrip()


class ConfigError(ValueError):
    """Raised before anything starts; the command line prints it as one line and exits with code 2."""

    def __init__(self, key: str, message: str, remedy: str) -> None:
        self.problem = Problem(key, message, remedy)
        super().__init__(str(self.problem))

    def __reduce__(self) -> tuple[type["ConfigError"], tuple[str, str, str]]:
        return type(self), (self.problem.key, self.problem.message, self.problem.remedy)
