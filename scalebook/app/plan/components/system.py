"""What the system is made of: fields, or YAML."""

import streamlit as st

from scalebook.app.plan.services import systems
from scalebook.app.plan.services.systems import FIELDS
from scalebook.app.shared import html
from scalebook.training.planning.profile import Profile
from scalebook.training.planning.words import busy_words

WIDTH = 150
"""Pixels: two beside each other at 400."""


def fields() -> Profile:
    """Boxes, all of them in the address. ConfigError for what is no profile."""
    typed = {}
    with st.container(horizontal=True):
        for field in FIELDS:
            typed[field.key] = st.text_input(
                field.label, field.default, key=field.key, help=field.hint, bind="query-params", width=WIDTH
            )
    return systems.from_fields(typed)


def text() -> Profile:
    """YAML, in the address too. ConfigError for what is no profile."""
    said = st.text_area("Profile", systems.TEMPLATE, height=230, key="profile", bind="query-params",
                        label_visibility="collapsed")  # fmt: skip
    return systems.from_text(said)


def facts(profile: Profile) -> None:
    """Figures of one that was measured."""
    if warning := busy_words(profile):
        st.warning(warning, icon=":material/warning:")
    html.facts(systems.facts(profile))
    st.caption(profile.source)
