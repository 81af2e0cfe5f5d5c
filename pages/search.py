"""Searches: all, one (`?search=ID`), or the setting up of one (`?notebook=N&experiment=CELL` or `&cell=CELL`)."""

import streamlit as st

from app.views import pulse, search_list, search_one, search_setup, writing

asked = st.query_params
if "search" in asked:
    search_one.show(asked["search"])
elif "notebook" in asked:
    search_setup.show(asked["notebook"], asked.get("cell", ""), asked.get("experiment", ""))
else:
    search_list.show()
    pulse.watch()
writing.show_conflict()
