"""Comparisons that were begun and not saved."""

from dataclasses import dataclass, replace

from scalebook.app.compare.services.plans import ComparisonPlan
from scalebook.app.shared import drafts
from scalebook.app.shared.drafts import Draft
from scalebook.training.notebook.cells import ComparisonCell, Notebook
from scalebook.training.workspace import Workspace


@dataclass(frozen=True)
class ComparisonDraft(Draft):
    """What the form said last. `editing` is the comparison that it was opened from, "" for a new one; `of_runs` tells
    new ones apart that were begun from chosen runs."""

    KIND = "comparison-draft"
    editing: str
    of_runs: str
    cell: ComparisonCell
    at: int | None = None

    @property
    def which(self) -> str:
        return f"{self.editing}\n{self.of_runs}"


def _of(plan: ComparisonPlan) -> ComparisonDraft:
    return ComparisonDraft(plan.stored.path.stem, plan.editing, plan.of_runs, replace(plan.cell, source=""), plan.at)


def save(workspace: Workspace, plan: ComparisonPlan, now: ComparisonCell) -> None:
    """Where it says something else than it was begun with or left with."""
    mine = _of(plan)
    left = drafts.load(workspace, ComparisonDraft, mine.notebook, mine.which)
    if now != (left.draft.cell if left else plan.cell):
        drafts.save(workspace, replace(mine, cell=replace(now, source="")))


def resumed(workspace: Workspace, plan: ComparisonPlan) -> ComparisonPlan:
    """`plan` with what was left of it."""
    mine = _of(plan)
    left = drafts.load(workspace, ComparisonDraft, mine.notebook, mine.which)
    if left is None:
        return plan
    return replace(plan, cell=replace(left.draft.cell, source=plan.cell.source), left_at=left.written_s)


def discard(workspace: Workspace, plan: ComparisonPlan) -> None:
    drafts.discard(workspace, ComparisonDraft, plan.stored.path.stem, _of(plan).which)


def cell_of(draft: ComparisonDraft, notebook: Notebook) -> ComparisonCell | None:
    """The cell that it was opened from; None of a new one, and where that is gone."""
    cells = (cell for cell in notebook.cells if isinstance(cell, ComparisonCell))
    return next((cell for cell in cells if draft.editing and cell.name == draft.editing), None)
