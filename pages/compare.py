"""Runs side by side (`?runs=ID,ID`): curves on one axis, a table, what differs in their configs."""

import streamlit as st

from scalebook.app.compare import page as compare_page

compare_page.show([part for part in st.query_params.get("runs", "").split(",") if part])
