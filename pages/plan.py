"""Planning with more workers, for an experiment (`?notebook=N&cell=CELL`, or `&experiment=CELL` as on the Search page),
or for a system described by hand."""

import streamlit as st

from scalebook.app.plan import page as plan_page

parameters = st.query_params
plan_page.show(parameters.get("notebook", ""), parameters.get("cell", "") or parameters.get("experiment", ""))
