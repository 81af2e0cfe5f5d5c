"""A claim of a notebook: its verdict, which nobody writes, and its YAML, which anybody may edit."""

from functools import partial

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.compare.components import claim
from scalebook.app.shared.components import better, cell_menu, html, press
from scalebook.app.shared.views import deleting, dialogs, placing
from scalebook.app.shared.views.writing import in_conflict, write
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
            if press.button("Edit", f"edit-{cell.name}", type="tertiary"):
                state.clicks().settle(f"edit-{cell.name}", done=False)
                dialogs.ask(f"Edit {cell.name}", partial(_edit, stored, index, cell), "large")
            intent = cell_menu.draw(cell.name)
        if intent == "delete":
            deleting.confirm(stored, index, "claim", cell.name, "The runs that it judges stay.")
        if intent is not None:
            placing.act(intent, stored, index)
            st.rerun()
        claim.body(judgement)
        if needs_curve(cell):
            _better(stored, cell, judgement)


def _better(stored: Stored, cell: ClaimCell, judgement: Judgement) -> None:
    key = f"better-{cell.name}"
    metric = judgement.cell.metric
    if goal := better.draw(metric, judgement.direction, key, stored.stamp):
        done = write(stored, lambda notebook: edit.say_better(notebook, cell, metric, goal))
        state.clicks().settle(key, done=done is not None)
        st.rerun()


def _edit(stored: Stored, index: int, cell: ClaimCell) -> None:
    """Its text; what cannot be read then says so in its place, and can be mended there."""
    height = min(500, max(180, 24 * (cell.source.count("\n") + 2)))
    text = st.text_area("Text", cell.source, height=height, key=f"claim-text-{cell.name}")
    with st.container(horizontal=True, horizontal_alignment="right"):
        if st.button("Cancel", key="claim-cancel"):
            dialogs.close()
            st.rerun()
        if press.button(
            "Save", "claim-save", f"{stored.path} {stored.stamp}", type="primary", disabled=not text.strip()
        ):
            whole = text if text.endswith("\n") else f"{text}\n"
            done = write(stored, lambda notebook: edit.replace_source(notebook, index, whole))
            state.clicks().settle("claim-save", done=done is not None)
            if done is not None or in_conflict():
                dialogs.close()
                st.rerun()
