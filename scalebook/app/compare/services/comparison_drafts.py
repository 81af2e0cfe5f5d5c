"""Comparisons that were begun and not saved, kept in the workspace's cache as forms and notes are."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from scalebook.app.compare.services.plans import ComparisonPlan
from scalebook.app.shared.services.drafts import written
from scalebook.training.files import records
from scalebook.training.notebook.cells import ComparisonCell, Notebook
from scalebook.training.workspace import Workspace


@dataclass(frozen=True)
class ComparisonDraft:
    """What the form said last. `editing` is the comparison that it was opened from, "" for a new one; `of_runs` tells
    new ones apart that were begun from chosen runs."""

    notebook: str
    editing: str
    of_runs: str
    cell: ComparisonCell
    at: int | None = None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _path(workspace: Workspace, notebook: str, editing: str, of_runs: str) -> Path:
    which = _digest(f"{editing}\n{of_runs}")
    return workspace.cache / f"comparison-draft-{_digest(notebook)}-{which}.json"


def _of(workspace: Workspace, plan: ComparisonPlan) -> Path:
    return _path(workspace, plan.stored.path.name, plan.editing, plan.of_runs)


def save(workspace: Workspace, plan: ComparisonPlan, now: ComparisonCell) -> None:
    """Where it says something else than it was begun with or left with."""
    path = _of(workspace, plan)
    left = records.peek(path, ComparisonDraft)
    if now != (left.cell if left else plan.cell):
        workspace.cache.mkdir(parents=True, exist_ok=True)
        draft = ComparisonDraft(plan.stored.path.name, plan.editing, plan.of_runs, replace(now, source=""), plan.at)
        records.save(path, draft)


def resumed(workspace: Workspace, plan: ComparisonPlan) -> ComparisonPlan:
    """`plan` with what was left of it."""
    left, at = records.peek(_of(workspace, plan), ComparisonDraft), written(_of(workspace, plan))
    if left is None or at is None:
        return plan
    return replace(plan, cell=replace(left.cell, source=plan.cell.source), left_at=at)


def discard(workspace: Workspace, plan: ComparisonPlan) -> None:
    _of(workspace, plan).unlink(missing_ok=True)


def forget(workspace: Workspace, draft: ComparisonDraft) -> None:
    _path(workspace, draft.notebook, draft.editing, draft.of_runs).unlink(missing_ok=True)


def of_notebook(workspace: Workspace, notebook: str) -> list[tuple[ComparisonDraft, float]]:
    """All drafts of one, the oldest first, with when they were written, in seconds since the epoch."""
    paths = workspace.cache.glob(f"comparison-draft-{_digest(notebook)}-*.json")
    left = [(records.peek(path, ComparisonDraft), written(path)) for path in paths]
    return sorted(((draft, at) for draft, at in left if draft and at), key=lambda one: one[1])


def cell_of(draft: ComparisonDraft, notebook: Notebook) -> ComparisonCell | None:
    """The cell that it was opened from; None of a new one, and where that is gone."""
    cells = (cell for cell in notebook.cells if isinstance(cell, ComparisonCell))
    return next((cell for cell in cells if draft.editing and cell.name == draft.editing), None)
