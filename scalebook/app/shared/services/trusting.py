"""What a folder that is not trusted would run, if it were."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scalebook.training.search.folder import all_searches
from scalebook.training.trust import FOUND, importable, notified, trusted
from scalebook.training.workspace import Workspace


@dataclass(frozen=True)
class TrustQuestion:
    """The folder's own modules, each with where it lies, and the jobs and searches that nobody has submitted here.

    `notified`: whom `[notify]` would tell, in words.
    """

    modules: Mapping[str, str]
    jobs: int
    searches: int
    notified: Sequence[str] = ()

    def lines(self) -> list[str]:
        """For a person to read, as plain text: names and paths are the folder's."""
        lines = [f"module {name}, from {source}" for name, source in self.modules.items()]
        if self.jobs:
            lines.append(f"{self.jobs} waiting job{'s' if self.jobs > 1 else ''}, not submitted here")
        if self.searches:
            lines.append(f"{self.searches} open search{'es' if self.searches > 1 else ''}, not submitted here")
        return [*lines, *self.notified]


def asking(workspace: Workspace, reasons: Mapping[str, str]) -> TrustQuestion | None:
    """What to ask a person about; None of a folder that is trusted, or has nothing that needs it.

    `reasons`: why each waiting job waits.
    """
    if trusted(workspace):
        return None
    searches = sum(search.result() is None and not search.may_run() for search in all_searches(workspace))
    question = TrustQuestion(importable(workspace), sum(reason == FOUND for reason in reasons.values()), searches,
                             notified(workspace))  # fmt: skip
    return question if question.lines() else None
