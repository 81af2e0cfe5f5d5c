"""A claim of a notebook: its verdict, which nobody writes, and its YAML, which anybody may edit."""

from dataclasses import replace
from functools import partial
from typing import NoReturn

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.compare.components import claim, claim_form
from scalebook.app.compare.services import claim_plans
from scalebook.app.compare.services.claim_plans import ClaimPlan
from scalebook.app.compare.views import editing
from scalebook.app.shared import dialogs, html, notes
from scalebook.app.shared.dialogs import in_conflict, write
from scalebook.app.shared.what_it_logs import what_it_logs
from scalebook.app.shared.widgets import cell_menu, press_button, turn_better
from scalebook.training.claims.evidence import needs_curve
from scalebook.training.claims.judging import Judgement
from scalebook.training.notebook import edit
from scalebook.training.notebook.cells import ClaimCell
from scalebook.training.notebook.store import Stored


def show(stored: Stored, index: int, cell: ClaimCell) -> None:
    """The card; drawn with its page."""
    judgement = resources.judgement(stored, cell)
    with st.container(border=True, key=f"cell-claim-{cell.name}"):
        left, right = st.columns([3, 2], vertical_alignment="center")
        with left:
            html.draw(claim.title(judgement))
        with (
            right,
            st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="center", gap="small"),
        ):
            if press_button("Edit", f"edit-{cell.name}", type="tertiary"):
                state.clicks().settle(f"edit-{cell.name}", done=False)
                dialogs.ask(f"Edit {cell.name}", partial(_edit, stored, index, cell), "large")
            intent = cell_menu(cell.name)
        if intent == "delete":
            dialogs.confirm_delete(stored, index, "claim", cell.name, "Its runs stay.")
        if intent is not None:
            notes.place(intent, stored, index)
            st.rerun()
        claim.body(judgement)
        for metric in dict.fromkeys(plain.metric for plain in judgement.cell.plain if needs_curve(plain)):
            _better(stored, cell, judgement, metric)


def _better(stored: Stored, cell: ClaimCell, judgement: Judgement, metric: str) -> None:
    key = f"better-{cell.name}-{metric}" if cell.ratios else f"better-{cell.name}"
    if goal := turn_better(metric, judgement.directions[metric], key, stored.stamp):
        done = write(stored, lambda notebook: edit.say_better(notebook, judgement.cell, metric, goal))
        state.clicks().settle(key, done=done is not None)
        st.rerun()


def ask_new(stored: Stored) -> NoReturn:
    """Opens the dialog for a new one."""
    plan = claim_plans.new(stored, resources.description(), editing.recorded(stored))
    dialogs.ask("New claim", partial(_form, plan), "large")


def _edit(stored: Stored, index: int, cell: ClaimCell) -> None:
    """As a form, or as its text; both keep what was typed while the other is looked at."""
    form, text = st.tabs(["Form", "YAML"])
    with form:
        _form(claim_plans.of_cell(stored, cell, resources.description(), editing.recorded(stored)))
    with text:
        _text(stored, index, cell)


def _form(plan: ClaimPlan) -> None:
    stored, description = plan.stored, resources.description()
    configs = {cell.name: cell.config for cell in stored.notebook.experiments()}
    seen = what_it_logs(configs, editing.recorded(stored), f"claim-{plan.editing}")
    plan = replace(plan, metrics=list(dict.fromkeys([*plan.metrics, *seen])))
    name, said, fits = claim_form.draw(plan, lambda said, name: plan.problems(said, name, description))
    wanted = claim_form.save(fits, f"{stored.path} {stored.stamp}")
    if wanted is None:
        return
    if wanted:
        done = write(stored, lambda notebook: plan.put(notebook, name, said), f"Saved {name}.")
        state.clicks().settle(claim_form.SAVE, done=done is not None)
        if done is None and not in_conflict():
            return  # it has been said why; what was chosen stays
    dialogs.close()
    st.rerun()


def _text(stored: Stored, index: int, cell: ClaimCell) -> None:
    """Its text; what cannot be read then says so in its place, and can be mended there."""
    height = min(500, max(180, 24 * (cell.source.count("\n") + 2)))
    text = st.text_area("Text", cell.source, height=height, key=f"claim-text-{cell.name}")
    with st.container(horizontal=True, horizontal_alignment="right"):
        if st.button("Cancel", key="claim-cancel"):
            dialogs.close()
            st.rerun()
        if press_button(
            "Save", "claim-save", f"{stored.path} {stored.stamp}", type="primary", disabled=not text.strip()
        ):
            whole = text if text.endswith("\n") else f"{text}\n"
            done = write(stored, lambda notebook: edit.replace_source(notebook, index, whole))
            state.clicks().settle("claim-save", done=done is not None)
            if done is not None or in_conflict():
                dialogs.close()
                st.rerun()
