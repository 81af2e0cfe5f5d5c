"""Runs side by side (`?runs=ID,ID`): curves on one axis, a table, what differs in their configs."""

import streamlit as st

from app import state
from app.views import compare_runs

compare_runs.show([one for one in st.query_params.get("runs", "").split(",") if one])
if toast := state.said():
    st.toast(toast[0], icon=toast[1])
