"""The notebook: its cells in order, as a document (`?notebook=NAME&cell=CELL`)."""

import streamlit as st

from scalebook.app.notebook import page as notebook_page

notebook_page.show(st.query_params.get("notebook"), st.query_params.get("cell", ""))
