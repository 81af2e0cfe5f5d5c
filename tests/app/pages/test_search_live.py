"""The live view of one search, on a study of the real store. Nothing is trained."""

import re

import pytest
from streamlit.testing.v1 import AppTest

from scalebook.app import resources
from scalebook.app.search import trial_data
from scalebook.training.base.workspace import Workspace
from scalebook.training.search.search_folder import SearchFolder
from scalebook.training.search.study.trials import TrialRecord
from tests.app import searches
from tests.app.pages.conftest import Open, html, words

SPACE = (searches.BATCH, searches.RATE, searches.STRATEGY)
TABS = {
    "Map": "best trial of each column",
    "Curves": "the better the trial's final value",
    "Parallel coordinates": "through its value",
    "Importance": "PED-ANOVA",
    "Pareto": "Quality against the seconds",
    "Table": "to sort",
}
"""Each tab, and words of its caption."""


@pytest.fixture
def search(workspace: Workspace) -> SearchFolder:
    """Sixty trials that have ended, of 3 seeds each."""
    found = searches.spec(SPACE, trials=60, seeds=3)
    return searches.folder(workspace, found, searches.records(found, 60))


def drawn(app: AppTest) -> list[str]:
    """What the charts of the page are said to show."""
    return [element.proto.alt for element in app.get("plotly_chart")]


def test_the_best_trial_stands_on_top_with_its_interval(open_page: Open, search: SearchFolder) -> None:
    app = open_page("search", search=search.id)
    records, spec = resources.search_records(search), resources.search_spec(search)
    best = trial_data.best(records, spec)
    assert best is not None
    assert best.values[0] == min(one.values[0] for one in records if one.values)
    shown = html(app)
    assert trial_data.reached(best, spec) in shown
    assert "±" in trial_data.reached(best, spec)
    assert trial_data.words(best, spec) in shown
    counts = trial_data.counts(records)
    assert f"{counts['finished']} finished" in shown
    assert re.search(rf"{counts['infeasible']} infeasible: \d+ ", shown)


@pytest.mark.sampled
@pytest.mark.parametrize("tab", TABS)
def test_only_the_open_tab_is_drawn(tab: str, open_page: Open, search: SearchFolder) -> None:
    app = open_page("search", search=search.id, view=tab)
    shown = words(app)
    assert {name for name, caption in TABS.items() if caption in shown} == {tab}
    assert len(drawn(app)) == (1 if tab == "Table" else 2)


def test_a_running_search_shows_how_far_it_is(open_page: Open, workspace: Workspace) -> None:
    found = searches.spec(SPACE, trials=40)
    folder = searches.folder(workspace, found, searches.records(found, 30, running=2), ended=False)
    app = open_page("search", search=folder.id)
    bars = [one.proto.text for one in app.get("progress")]
    assert "28 of 40 trials, 2 running, about 1 min 35 s left" in bars
    assert "2 running" in html(app)


def test_before_the_first_trial_has_ended_the_page_says_so(open_page: Open, workspace: Workspace) -> None:
    found = searches.spec(SPACE, trials=40)
    waiting = [TrialRecord(0, "running", {"batch_size": 64, "learning_rate": 0.1, "strategy": "ddp"})]
    folder = searches.folder(workspace, found, waiting, ended=False)
    app = open_page("search", search=folder.id)
    assert words(app).count("No trial has ended yet") == 1
    assert drawn(app) == []


def test_few_trials_have_no_importance(open_page: Open, workspace: Workspace) -> None:
    found = searches.spec(SPACE, trials=6)
    app = open_page(
        "search", search=searches.folder(workspace, found, searches.records(found, 6)).id, view="Importance"
    )
    assert "needs 10 finished trials" in html(app)


def test_a_search_with_one_axis_has_no_map_and_begins_with_its_curves(open_page: Open, workspace: Workspace) -> None:
    found = searches.spec((searches.RATE, searches.STRATEGY), trials=12)
    app = open_page("search", search=searches.folder(workspace, found, searches.records(found, 12)).id)
    assert [tab.label for tab in app.tabs][:2] == ["Curves", "Parallel coordinates"]
    assert TABS["Curves"] in words(app) + html(app)


def test_axes_and_panels_can_be_chosen(open_page: Open, workspace: Workspace) -> None:
    found = searches.spec((*SPACE, searches.FEATURES), trials=40)
    folder = searches.folder(workspace, found, searches.records(found, 40))
    app = open_page("search", search=folder.id)
    boxes = {one.label: one for one in app.selectbox}
    assert boxes["X axis"].options == ["batch size", "learning rate", "model.features"]
    boxes["X axis"].set_value("model.features").run()
    boxes = {one.label: one for one in app.selectbox}
    assert boxes["Y axis"].options == ["batch size", "learning rate"]
    boxes["Facet by"].set_value(()).run()
    assert not app.exception
    assert any("over model.features and learning_rate" in one for one in drawn(app))


def test_a_ticked_row_offers_its_configuration(open_page: Open, search: SearchFolder) -> None:
    app = open_page("search", search=search.id, view="Table")
    app.session_state[f"trials-{search.id}"] = {"selection": {"rows": [7], "columns": [], "cells": []}}
    app.run()
    assert any(one.value.startswith("trial 7: batch ") for one in app.caption)
    assert [one.label for one in app.button if one.key == "row-use"] == ["Use this configuration"]
