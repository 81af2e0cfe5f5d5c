"""The documents that ship with Scalebook, one at a time (`?document=how-to/gpus`)."""

import streamlit as st

from scalebook.app.help import page as help_page

help_page.show(st.query_params.get("document"))
