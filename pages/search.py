"""Searches: all, one (`?search=ID`), or setting one up (`?notebook=N&experiment=CELL` or `&cell=CELL`)."""

import streamlit as st

from scalebook.app.search import page as search_page
from scalebook.app.search_setup import page as setup_page

parameters = st.query_params
view = "one" if "search" in parameters else "setup" if "notebook" in parameters else "list"
# Each view has its own container, so that the previous view disappears at once, and is not overdrawn piece by piece.
places = {name: st.container() if name == view else st.empty() for name in ("setup", "list", "one")}
with places[view]:
    if view == "one":
        search_page.show_one(parameters["search"])
    elif view == "setup":
        setup_page.show(parameters["notebook"], parameters.get("cell", ""), parameters.get("experiment", ""))
    else:
        search_page.show_list()
