"""All runs, or one of them (`?run=ID`)."""

import streamlit as st

from scalebook.app.one_run import page as one_run
from scalebook.app.runs import page as run_list

run_id = st.query_params.get("run")
if run_id:
    one_run.show(run_id)
else:
    run_list.show()
