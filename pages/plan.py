"""Planning with more workers, for an experiment (`?notebook=N&cell=CELL`) or a system described by hand."""

import streamlit as st

from scalebook.app.plan import page as plan_page
from scalebook.app.shared import dialogs

plan_page.show(st.query_params.get("notebook", ""), st.query_params.get("cell", ""))
dialogs.show()
