"""Deleting runs, after a question."""

from collections.abc import Sequence
from functools import partial
from typing import NoReturn

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.runs.services import removing
from scalebook.app.runs.services.runs import RunView
from scalebook.app.shared import dialogs
from scalebook.app.shared.widgets import press_button
from scalebook.app.shared.words import plural

DELETE = "delete-runs"
NAMED = 8


def ask(views: Sequence[RunView]) -> NoReturn:
    """Opens the dialog."""
    dialogs.ask(f"Delete {plural(len(views), 'run')}?", partial(_draw, views))


def _draw(views: Sequence[RunView]) -> None:
    titles = [view.title for view in views]
    more = [f"and {len(titles) - NAMED} more"] if len(titles) > NAMED else []
    st.text("\n".join([*titles[:NAMED], *more]))
    st.markdown(
        "This removes their logs and checkpoints. MLflow keeps their entries among its deleted runs. "
        "What they had locked of claims goes with them."
    )
    if any(not view.ended for view in views):
        st.caption("Queued and running runs stay: stop them first.")
    with st.container(horizontal=True, horizontal_alignment="right"):
        if st.button("Cancel", key="keep-runs"):
            dialogs.close()
            st.rerun()
        if press_button("Delete", DELETE, " ".join(view.id for view in views), type="primary"):
            ended = [view.id for view in views if view.ended]
            done, refused = removing.delete_runs(resources.workspace(), resources.reader(), ended)
            state.clicks().settle(DELETE)
            resources.look_at_all_runs_anew()
            icon = ":material/error:" if refused else ":material/check:"
            state.say(" ".join([f"Deleted {plural(done, 'run')}.", *refused]), icon)
            dialogs.close()
            st.rerun()
