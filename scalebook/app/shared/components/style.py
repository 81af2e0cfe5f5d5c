"""The style sheet, and what every page begins and ends with."""

from pathlib import Path

import streamlit as st

HERE = Path(__file__).parent
ICON = str(HERE / "mark.svg")
SCRIPTS = ("keep_typing.js", "chart_files.js")


def draw() -> None:
    """Once a run of the frame, before the page."""
    st.logo(str(HERE / "wordmark.svg" if not dark() else HERE / "wordmark_dark.svg"), size="large")
    st.html(HERE / "style.css")
    with st.container(key="keep-typing"):
        scripts = "".join(f"<script>{(HERE / name).read_text(encoding='utf-8')}</script>" for name in SCRIPTS)
        st.html(scripts, unsafe_allow_javascript=True)


def dark() -> bool:
    """Whether the browser shows the dark theme. Unknown until the browser has said so: then light."""
    return st.context.theme.type == "dark"
