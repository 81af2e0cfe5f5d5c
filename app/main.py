"""The frame around every page: title, menu, style. Started by `scalebook ui`."""

import streamlit as st

from scalebook.app import state
from scalebook.app.navigation import NOTEBOOK, PLACES
from scalebook.app.shared import dialogs, style
from scalebook.app.shared.frame import ask_trust, keep_notebook_address, watch_endings
from scalebook.training.base import ConfigError

st.set_page_config(page_title="Scalebook", page_icon=style.ICON, layout="wide")
style.draw()
watch_endings()  # before the page: a place of its own, whatever the page draws, or stops drawing half-way
pages = [
    st.Page(
        place.script,
        title=place.title,
        icon=place.icon,
        url_path=place.path or None,
        default=place is NOTEBOOK,
        visibility="hidden" if place.hidden else "visible",
    )
    for place in PLACES
]
page = st.navigation(pages, position="top")
state.visit(page.url_path)
keep_notebook_address(page.url_path)
try:
    ask_trust()
    page.run()
    dialogs.show()
except ConfigError as error:
    st.error(str(error), icon=":material/error:")
if toast := state.pop_message():
    st.toast(toast[0], icon=toast[1])
