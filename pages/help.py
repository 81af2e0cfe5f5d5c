"""The README as it ships with Scalebook."""

import streamlit as st

from scalebook.app.help import readme_contents, readme_text
from scalebook.app.shared import dialogs
from scalebook.app.shared.widgets import page_title

text = readme_text()
page_title("Help")
st.markdown(readme_contents(text))
with st.container(key="document"):
    st.markdown(text)
dialogs.show()
