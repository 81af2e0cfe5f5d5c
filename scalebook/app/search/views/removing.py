"""Deleting searches, after a question; the runs of their trials with them, or not."""

from collections.abc import Sequence
from functools import partial
from typing import NoReturn

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.runs.data import delete_search
from scalebook.app.search.services.searches import SearchView
from scalebook.app.shared import dialogs
from scalebook.app.shared.widgets import press_button
from scalebook.app.shared.words import ago
from scalebook.training.errors import ConfigError

DELETE = "delete-chosen-searches"


def ask(ended: Sequence[SearchView]) -> NoReturn:
    """Opens the dialog: which of those that have ended."""
    dialogs.ask("Delete searches?", partial(_draw, ended))


def _draw(ended: Sequence[SearchView]) -> None:
    words = {view.id: f"{view.name}, {ago(view.request.created)}, {view.done:,} trials" for view in ended}
    chosen = st.multiselect("Searches", list(words), key="searches-to-delete", format_func=lambda key: words[key],
                            placeholder="Choose ended searches")  # fmt: skip
    trials = st.toggle("Also delete the runs of their trials", key="trials-to-delete")
    st.markdown("This removes their studies: they cannot be resumed. MLflow keeps entries among its deleted runs.")
    with st.container(horizontal=True, horizontal_alignment="right"):
        if st.button("Cancel", key="keep-searches"):
            dialogs.close()
            st.rerun()
        if press_button("Delete", DELETE, " ".join(words), type="primary", disabled=not chosen):
            refused = _delete([view for view in ended if view.id in chosen], trials)
            state.clicks().settle(DELETE, done=False)
            resources.look_at_all_runs_anew()
            state.say(" ".join(["Deleted.", *refused]), ":material/error:" if refused else ":material/check:")
            dialogs.close()
            st.rerun()


def _delete(views: Sequence[SearchView], trials: bool) -> list[str]:
    """Why some could not be deleted."""
    refused = []
    for view in views:
        try:
            refused += delete_search(resources.workspace(), resources.reader(), view.folder, trials=trials)
        except ConfigError as error:
            refused.append(str(error))
    return refused
