"""Composing an experiment: the form, and beside it the YAML and the command it makes (`?notebook=NAME&cell=CELL`)."""

import streamlit as st

from scalebook.app.compose import page as compose_page

compose_page.show(st.query_params.get("notebook"), st.query_params.get("cell", ""))
