"""Runs side by side (`?runs=ID,ID`): curves on one axis, a table, what differs in their configs."""

import streamlit as st

from scalebook.app.compare.views import compare_runs
from scalebook.app.shared import dialogs

compare_runs.show([part for part in st.query_params.get("runs", "").split(",") if part])
dialogs.show()
