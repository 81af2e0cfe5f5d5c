"""Composing an experiment: the form, and beside it the YAML and the command it makes."""

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.compose.views import compose, preload
from scalebook.app.navigation import NOTEBOOK
from scalebook.app.shared.components import html, page_head
from scalebook.app.shared.services import notebooks
from scalebook.app.shared.views import writing

choice = notebooks.pick(resources.workspace(), st.query_params.get("notebook"))
if choice is None:
    html.empty("No notebook to write into", "Make one on the first page, then press New experiment there.")
    st.stop()

description = resources.description()
cell = st.query_params.get("cell", "")
draft = compose.load(choice, cell, description)

back, mode_column = st.columns([3, 1], vertical_alignment="bottom")
with back:
    st.page_link(
        NOTEBOOK.script, label=choice.title, icon=":material/arrow_back:", query_params={"notebook": choice.name}
    )
    page_head.title(f"Edit {cell}" if cell else "New experiment")
with mode_column, st.container(horizontal=True, horizontal_alignment="right"):
    mode = st.segmented_control("Edit as", ["Form", "YAML"], default="Form", required=True, key="compose-mode",
                                label_visibility="collapsed")  # fmt: skip
    if st.button("Start over", type="tertiary", help="Forget what was changed here."):
        compose.start_over(draft)
        st.rerun()

if mode != state.recall("compose-mode", "Form"):
    state.remember("compose-mode", mode)
    compose.rebase(draft)
    st.rerun()

for problem in description.problems:
    st.warning(f"A module of scalebook.toml could not be imported. {problem}")

left, right = st.columns([11, 8], gap="large")
with left:
    edit = compose.edit_as_yaml if mode == "YAML" else compose.edit_as_form
    config, name, repeats, homeless = edit(draft, description)
compose.keep(draft, config, name, repeats, description)
with right, st.container(key="beside"):
    intent = compose.result(choice, config, name, repeats, homeless, description)
preload.charts()
if intent:
    compose.finish(intent, choice, draft, config, name, repeats, description)
writing.show_conflict()
