"""Planning with more workers: of an experiment (`?notebook=N&cell=CELL`), or of a system written by hand."""

import streamlit as st

from scalebook.app.plan import page as plan_page
from scalebook.app.shared import dialogs

plan_page.show(st.query_params.get("notebook", ""), st.query_params.get("cell", ""))
dialogs.show()
