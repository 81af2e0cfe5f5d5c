"""The Help page."""

import streamlit as st

from scalebook.app.help.data import GENERATED, START, documents, generated, link, rows
from scalebook.app.resources import description
from scalebook.app.shared import dialogs
from scalebook.app.shared.widgets import page_title


def show(name: str | None) -> None:
    """Draw the document of this name; the index without a name, or, with a warning, where there is no such document."""
    name = name or START
    document = documents().get(name, documents()[START])
    if document.name in GENERATED:
        document = generated(document.name, description)
    page_title("Help" if document.name == START else document.title)
    if document.name != name:
        st.warning(f"There is no document {name}.")
    for row in rows(document):
        st.markdown(
            " · ".join(f"**{one.title}**" if one.name == document.name else link(one.title, one.name) for one in row),
            unsafe_allow_html=True,
        )
    if contents := document.contents():
        st.caption("On this page: " + " · ".join(f"[{title}](#{anchor})" for title, anchor in contents))
    with st.container(key="document"):
        st.markdown(document.shown(), unsafe_allow_html=True)
    dialogs.show()
