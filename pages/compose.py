"""Composing an experiment: the form, and beside it the resulting YAML and command (`?notebook=NAME&cell=CELL`)."""

import streamlit as st

from scalebook.app.compose import page as compose_page

compose_page.show(st.query_params.get("notebook"), st.query_params.get("cell", ""))
