"""The README as it ships with Scalebook."""

import streamlit as st

from scalebook.app.shared.components import page_head
from scalebook.app.shared.services import readme
from scalebook.app.shared.views import dialogs

text = readme.text()
page_head.title("Help")
st.markdown(readme.contents(text))
with st.container(key="document"):
    st.markdown(text)
dialogs.show()
