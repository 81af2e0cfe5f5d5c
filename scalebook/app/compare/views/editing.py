"""Setting up a comparison, in a dialog: a new cell of a notebook, or one that is there. Cancel gives it up; closed
otherwise it stays as a draft."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NoReturn

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.compare.components import comparison_form
from scalebook.app.compare.services import comparison_drafts, plans
from scalebook.app.compare.services.comparison_drafts import ComparisonDraft
from scalebook.app.compare.services.plans import ComparisonPlan
from scalebook.app.navigation import NOTEBOOK
from scalebook.app.shared import dialogs, drafts
from scalebook.app.shared.dialogs import in_conflict, write
from scalebook.app.shared.what_it_logs import what_it_logs
from scalebook.app.shared.widgets import draft_label
from scalebook.training.notebook.store import Stored
from scalebook.training.tracking.reading import RunRecord


def ask(fresh: Sequence[ComparisonPlan], *, leads_there: bool = False) -> NoReturn:
    """Opens the dialog; several are of several notebooks. `leads_there`: what is saved is shown then."""
    _open([comparison_drafts.resumed(resources.workspace(), plan) for plan in fresh], fresh, leads_there)


def recorded(stored: Stored) -> list[RunRecord]:
    """The newest runs of the notebook, which say what they log."""
    return resources.notebook_runs(stored.path.name).runs(notebook=stored.path.name)


def _open(begun: Sequence[ComparisonPlan], fresh: Sequence[ComparisonPlan], leads_there: bool) -> NoReturn:
    """It begins with `begun`, which may be drafts, of `fresh`."""
    title = "Edit comparison" if begun[0].editing else "New comparison"
    dialogs.ask(title, partial(_draw, begun, fresh, leads_there), "large")


def show_left(stored: Stored) -> None:
    """What was begun in this notebook and not saved, unless it is at work."""
    if dialogs.is_open():
        return
    workspace = resources.workspace()
    for i, (draft, left_at) in enumerate(drafts.of_notebook(workspace, ComparisonDraft, stored.path.stem)):
        cell = comparison_drafts.cell_of(draft, stored.notebook)
        what = f"the comparison {draft.editing}" if cell else "a new comparison"
        words = f"{draft.cell.name}: {', '.join(draft.cell.runs)}"
        asked = draft_label(left_at, what, key=f"comparison-{i}", text=words)
        if asked == "continue":
            description = resources.description()
            runs = recorded(stored)
            fresh = (
                plans.of_cell(stored, cell, description, runs)
                if cell
                else plans.new(stored, description, at=draft.at, recorded=runs)
            )
            _open([replace(fresh, cell=draft.cell, of_runs=draft.of_runs, left_at=left_at)], [fresh], leads_there=False)
        elif asked == "discard":
            drafts.discard(workspace, ComparisonDraft, draft.notebook, draft.which)
            st.rerun()


def _draw(begun: Sequence[ComparisonPlan], fresh: Sequence[ComparisonPlan], leads_there: bool) -> None:
    which, workspace = 0, resources.workspace()
    if len(begun) > 1:
        which = st.selectbox(
            "Notebook", range(len(begun)), format_func=lambda i: begun[i].stored.notebook.title, key="comparison-in"
        )
    plan = begun[which]
    if plan.left_at is not None and draft_label(plan.left_at, "this comparison", key="comparison") == "discard":
        comparison_drafts.discard(workspace, plan)
        _open([fresh[which] if i == which else other for i, other in enumerate(begun)], fresh, leads_there)
    if leads_there:
        st.caption(f"Adds a cell to **{plan.stored.path.name}** that shows the newest runs of these experiments.")
    if plan.left_out:
        st.caption(f"Left out, because this notebook has no such experiment: {', '.join(plan.left_out)}.")
    chosen = {cell.name: cell.config for cell in plan.stored.notebook.experiments() if cell.name in plan.cell.runs}
    seen = what_it_logs(chosen, recorded(plan.stored), "comparison")
    plan = replace(plan, metrics=list(dict.fromkeys([*plan.metrics, *seen])))
    now, wrong = comparison_form.draw(plan)
    comparison_drafts.save(workspace, plan, now)
    intent = comparison_form.buttons(wrong, f"{plan.stored.path} {plan.stored.stamp}")
    if intent == "save":
        done = write(plan.stored, lambda notebook: plan.put(notebook, now), f"Saved {now.name}.")
        state.clicks().settle(comparison_form.SAVE, done=done is not None)
        if done is None and not in_conflict():
            return  # it has been said why; what was chosen stays
        dialogs.close()
        if done is not None:
            comparison_drafts.discard(workspace, plan)
        if done is not None and leads_there:
            st.switch_page(NOTEBOOK.script, query_params={"notebook": plan.stored.path.stem})
    elif intent == "cancel":
        comparison_drafts.discard(workspace, plan)
    if intent is not None:
        dialogs.close()
        st.rerun()
