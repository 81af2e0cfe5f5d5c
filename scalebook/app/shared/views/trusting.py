"""The question whether a folder is to be trusted, above every page until it is answered."""

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.shared.components import code
from scalebook.app.shared.services.trusting import asking
from scalebook.training.jobs import supervising
from scalebook.training.trust import trust

WORDS = (
    "**This folder wants to run its own code.** That code can do whatever you can: read it first if somebody else "
    "wrote it. Until you trust the folder, its notebooks have only Scalebook's own classes."
)


def draw() -> None:
    """The question whether to trust the folder; nothing where there is nothing to ask."""
    workspace = resources.workspace()
    question = asking(workspace, resources.waiting_reasons())
    if question is None:
        return
    with st.container(border=True):
        st.markdown(f":material/shield: {WORDS}")
        code.draw("\n".join(question.lines()), wrap=True)
        if st.button("Trust this folder", key="trust-folder"):
            trust(workspace)
            resources.look_anew()
            supervising.ensure(workspace)
            state.say("This folder is now trusted.")
            st.rerun()
