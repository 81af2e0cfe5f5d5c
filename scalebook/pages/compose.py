"""Composing an experiment: the form, and beside it the YAML and the command it makes."""

import streamlit as st

from scalebook.app import resources
from scalebook.app.compose.views import compose
from scalebook.app.navigation import NOTEBOOK
from scalebook.app.shared import dialogs, html
from scalebook.app.shared.frame import last_notebook, preload_charts
from scalebook.app.shared.widgets import draft_line, page_title

wanted = st.query_params.get("notebook")
choice = last_notebook(wanted)
if choice is None:
    missing = f"No notebook called {wanted}" if wanted else "No notebook to write to"
    html.empty(missing, "Open or create a notebook first, then press New experiment there.")
    st.stop()

description = resources.description()
cell = st.query_params.get("cell", "")
draft = compose.load(choice, cell, description)
if draft is None:
    compose.show_missing(choice, cell)
    st.stop()

back, mode_column = st.columns([3, 1], vertical_alignment="bottom")
with back:
    st.page_link(
        NOTEBOOK.script, label=choice.label, icon=":material/arrow_back:", query_params=NOTEBOOK.cell(choice.name, cell)
    )
    page_title(f"Edit {cell}" if cell else "New experiment", within=choice.title)
with mode_column, st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="center"):
    mode, mode_wanted = compose.mode()
    if st.button("Start over", type="tertiary", help="Discards the draft: back to what the notebook has."):
        compose.start_over(draft)
        st.rerun()
if draft.left_at is not None:
    draft_line(draft.left_at, "this experiment")

for problem in description.problems:
    st.warning(f"A module of scalebook.toml could not be imported. {problem}")
for refused in description.refused:
    if refused.by_mistake:
        st.warning(f"One of your classes cannot be used. {refused}")

left, right = st.columns([11, 8], gap="large")
with left:
    edited = (compose.edit_as_yaml if mode == "YAML" else compose.edit_as_form)(draft, description)
compose.keep(draft, edited, description)
if mode != mode_wanted:
    compose.turn(draft, mode_wanted)
with right, st.container(key="beside"):
    intent = compose.result(choice, edited, description)
preload_charts()
if intent:
    compose.finish(intent, choice, draft, edited, description)
dialogs.show()
