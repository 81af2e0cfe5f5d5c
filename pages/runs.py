"""All runs, or one of them (`?run=ID`)."""

import streamlit as st

from app.views import pulse, run_detail, run_list

run_id = st.query_params.get("run")
if run_id:
    run_detail.show(run_id)
else:
    run_list.show()
    pulse.watch()
