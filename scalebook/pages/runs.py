"""All runs, or one of them (`?run=ID`)."""

import streamlit as st

from scalebook.app.runs.views import run_detail, run_list
from scalebook.app.shared import dialogs
from scalebook.app.shared.frame import watch

run_id = st.query_params.get("run")
if run_id:
    run_detail.show(run_id)
else:
    run_list.show()
    watch()
dialogs.show()
