"""What is better of the main metric of runs: said where it is a guess, and turned by a click."""

from collections.abc import Sequence

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.runs.services.runs import RunView
from scalebook.app.runs.services.turning import turn
from scalebook.app.shared.widgets import turn_better
from scalebook.training.tracking import directions, names


def show(views: Sequence[RunView], key: str) -> None:
    """Of runs of one experiment that have ended; nothing while one goes on, which records its own best value."""
    main = names.main_metric(name for view in views for name in view.metrics)
    if main not in names.validation_metrics(name for view in views for name in view.metrics):
        return
    if not views or not all(view.ended for view in views):
        return
    told = directions.of_runs(main, None, [view.record.tags for view in views])
    if goal := turn_better(main, told, key, said=True):
        turn(resources.reader(), [view.record for view in views], main, goal)
        resources.look_at_all_runs_anew()
        state.clicks().settle(key)
        st.rerun()
