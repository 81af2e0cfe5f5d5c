"""The style sheet, the logo, and the scripts of every page."""

from pathlib import Path

import streamlit as st

from scalebook.app.navigation import PLACES

ASSETS = Path(__file__).parent / "assets"
ICON = str(ASSETS / "mark.svg")
SCRIPTS = (
    "keep_typing.js",
    "keys.js",
    "chart_files.js",
    "theme_switch.js",
    "bell.js",
    "gone.js",
    "links.js",
    "history.js",
    "copy.js",
    "nearby.js",
)


def draw() -> None:
    """Draw logo, style sheet and scripts, in each run of the frame, before the page."""
    st.logo(str(ASSETS / "wordmark.svg" if not dark() else ASSETS / "wordmark_dark.svg"), size="large")
    st.html(ASSETS / "style.css")
    _theme_switch()
    with st.container(key="keep-typing"):
        scripts = "".join(f"<script>{(ASSETS / name).read_text(encoding='utf-8')}</script>" for name in SCRIPTS)
        st.html(scripts, unsafe_allow_javascript=True)


def _theme_switch() -> None:
    """Draw the switch of the theme and the bell, at the right of the menu (`theme_switch.js`, `bell.js`)."""
    to, sign = ("Light", "☀") if dark() else ("Dark", "☾")
    words = f"Switch to the {to.lower()} theme"
    paths = " ".join(f"/{place.path}" for place in PLACES)
    with st.container(key="theme-switch"):
        st.html(
            f'<button type="button" class="sb-theme" data-to="{to}" data-paths="{paths}" '
            f'title="{words}" aria-label="{words}">{sign}</button>'
            '<button type="button" class="sb-bell" aria-label="Notifications"></button>'
        )


def dark() -> bool:
    """Whether the browser shows the dark theme; False until the browser has reported it."""
    return st.context.theme.type == "dark"
