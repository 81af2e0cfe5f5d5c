"""Setting up a comparison, in a dialog: a new cell of a notebook, or one that is there."""

from collections.abc import Sequence
from functools import partial
from typing import NoReturn

import streamlit as st

from scalebook.app import state
from scalebook.app.compare.components import comparison_form
from scalebook.app.compare.services.plans import ComparisonPlan
from scalebook.app.navigation import NOTEBOOK
from scalebook.app.shared.views import dialogs
from scalebook.app.shared.views.writing import in_conflict, write


def ask(plans: Sequence[ComparisonPlan], *, leads_there: bool = False) -> NoReturn:
    """Opens the dialog; several `plans` are of several notebooks. `leads_there`: what is saved is shown then."""
    title = "Edit comparison" if plans[0].editing else "New comparison"
    dialogs.ask(title, partial(_draw, plans, leads_there), "large")


def _draw(plans: Sequence[ComparisonPlan], leads_there: bool) -> None:
    plan = plans[0]
    if len(plans) > 1:
        plan = st.selectbox("Notebook", plans, format_func=lambda plan: plan.stored.notebook.title, key="comparison-in")
    if leads_there:
        st.caption(f"Becomes a cell of **{plan.stored.path.name}**. It shows the newest runs of these experiments.")
    if plan.left_out:
        st.caption(f"Left out, since this notebook has no such experiment: {', '.join(plan.left_out)}.")
    now, wrong = comparison_form.draw(plan)
    intent = comparison_form.buttons(wrong, f"{plan.stored.path} {plan.stored.stamp}")
    if intent == "save":
        done = write(plan.stored, lambda notebook: plan.put(notebook, now), f"Saved {now.name}.")
        state.clicks().settle(comparison_form.SAVE, done=done is not None)
        if done is None and not in_conflict():
            return  # it has been said why; what was chosen stays
        dialogs.close()
        if done is not None and leads_there:
            st.switch_page(NOTEBOOK.script, query_params={"notebook": plan.stored.path.stem})
    if intent is not None:
        dialogs.close()
        st.rerun()
