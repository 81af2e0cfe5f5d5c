"""The list of runs: filtered, grouped, sorted, annotated, deleted, by hand and by its address."""

import json
import math
import re
from html import unescape
from io import StringIO
from urllib.parse import parse_qs, urlsplit

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from scalebook.app.navigation import RUNS
from scalebook.app.runs import data as runs
from scalebook.app.runs import run_query
from scalebook.app.runs.remarks import write_remarks
from scalebook.app.runs.table import as_csv
from scalebook.training.base.workspace import Workspace
from scalebook.training.tracking import names, notes
from scalebook.training.tracking.run_reader import RunReader
from scalebook.training.tracking.run_start import open_store
from tests.app import searches
from tests.app.pages.conftest import MAIN, Open, html, run_names, words
from tests.app.recorded import record

pytestmark = pytest.mark.long

BEST = names.best(names.VAL_BITS_PER_DIM)


def rows(app: AppTest) -> list[str]:
    return run_names(app.dataframe[0].value) if app.dataframe else []


def key_of_table(app: AppTest) -> str:
    return str(app.dataframe[0].proto.id).split("-", 2)[2]


def tag(workspace: Workspace, run_id: str, **values: str) -> None:
    store = open_store(workspace)
    keys = {"model": names.TAG_MODEL, "batch": names.TAG_BATCH_PER_WORKER, "trial": names.TAG_TRIAL,
            "test": names.TAG_TEST}  # fmt: skip
    for key, value in values.items():
        store.set_tag(run_id, keys.get(key, key), value)


def test_the_list_is_a_file_with_names_not_addresses(open_page: Open, workspace: Workspace) -> None:
    jobs = [record(workspace, cell="a", seed=seed) for seed in (1, 2)]
    assert open_page("runs").download_button(key="runs-csv").label == "CSV"
    views = runs.views(workspace, RunReader(workspace.tracking_uri()).runs(), dict)
    table = pd.read_csv(StringIO(as_csv(views, [names.UPDATES])))
    assert list(table["Run"]) == ["a · seed 2", "a · seed 1"]
    assert list(table["id"]) == [job.id for job in reversed(jobs)]
    assert list(table["State"]) == ["finished"] * 2
    assert table[names.UPDATES].notna().all()
    assert "/runs" not in table.to_csv()


def test_a_view_comes_from_its_address_and_changes_by_hand(open_page: Open, workspace: Workspace) -> None:
    for number, batch in enumerate(("1024", "64", "256")):
        job = record(workspace, cell=f"c{number}", level=3.0 - number, notebook=f"n{number % 2}.md")
        tag(workspace, job.id, batch=batch)
    app = open_page("runs", notebook="n0", sort=BEST, down="false", columns=names.UPDATES)
    assert rows(app) == ["c2 · seed 1", "c0 · seed 1"]
    assert "2 runs: notebook n0. Tick runs" in html(app)
    order = list(app.dataframe[0].proto.column_order)
    assert ("batch" in order, "notebook" in order) == (True, False), "what differs has a column"
    assert list(app.dataframe[0].value[f"metric {names.UPDATES}"]) == [1200.0, 1200.0]
    app.multiselect(key="notebook").set_value([]).run()
    app.selectbox(key="sort").select("batch").run()
    assert rows(app) == ["c1 · seed 1", "c2 · seed 1", "c0 · seed 1"]
    app.multiselect(key="batch").set_value(["64", "1024"]).run()
    app.toggle(key="down").set_value(True).run()
    assert rows(app) == ["c0 · seed 1", "c1 · seed 1"]
    assert "No matching run" in html(open_page("runs", model="Gone"))


@pytest.mark.thorough
def test_groups_open_on_a_click(open_page: Open, workspace: Workspace) -> None:
    record(workspace, cell="a", notebook="n0.md", level=1.0)
    record(workspace, cell="b", notebook="n0.md", level=2.0)
    record(workspace, cell="c", notebook="n1.md", state="failed")
    app = open_page("runs", group="notebook")
    table = app.dataframe[0].value
    assert list(table["value"]) == ["n0", "n1"]
    assert list(table["states"]) == ["2 finished", "1 failed"]
    assert [round(mean, 3) for mean in table["mean"]] == [1.547, 2.047]
    app.session_state[key_of_table(app)] = {"selection": {"rows": [], "columns": [], "cells": [(0, "value")]}}
    app.run()
    assert rows(app) == ["b · seed 1", "a · seed 1"]
    assert app.multiselect(key="notebook").value == ["n0"]


def test_trials_are_shown_where_they_are_asked_for(open_page: Open, workspace: Workspace) -> None:
    record(workspace, cell="a")
    tag(workspace, record(workspace, cell="s").id, trial="4")
    assert rows(open_page("runs")) == ["a · seed 1"]
    assert rows(open_page("runs", trials="true")) == ["s · trial 4 · seed 1", "a · seed 1"]


def test_what_a_plan_measured_is_apart_and_marked(open_page: Open, workspace: Workspace) -> None:
    record(workspace, cell="a")
    measured = record(workspace, cell="s").id
    tag(workspace, measured, test="plan")
    assert rows(open_page("runs")) == ["a · seed 1"]
    app = open_page("runs", tests="true")
    assert rows(app) == ["s · seed 1", "a · seed 1"]
    assert list(app.dataframe[0].value["remark"]) == ["measured for Plan", ""]
    assert ">measured for Plan</span>" in html(open_page("runs", run=measured))


@pytest.mark.thorough
def test_pages_of_a_long_list(open_page: Open, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scalebook.app.runs.page.PER_PAGE", 2)
    for number in range(3):
        record(workspace, cell=f"c{number}")
    app = open_page("runs")
    assert rows(app) == ["c2 · seed 1", "c1 · seed 1"]
    assert "1 – 2 of 3" in html(app)
    next(button for button in app.button if button.label == "Next").click().run()
    assert rows(app) == ["c0 · seed 1"]
    app.selectbox(key="sort").select("name").run()
    assert rows(app) == ["c2 · seed 1", "c1 · seed 1"], "another order begins with its first page"
    assert rows(open_page("runs", page="2")) == ["c0 · seed 1"]
    assert rows(open_page("runs", page="7")) == ["c2 · seed 1", "c1 · seed 1"], "beyond the last one"


def test_a_note_and_tags_are_written_to_mlflow(open_page: Open, workspace: Workspace) -> None:
    job = record(workspace, cell="a")
    record(workspace, cell="b")
    tag(workspace, job.id, old="")
    app = open_page("runs", run=job.id)
    app.button(key="remarks-edit").click().run()
    app.text_area(key="remarks-note").set_value("Diverged *late*").run()
    app.multiselect(key="remarks-tags").set_value(["good", "kind=big", "mlflow.user"]).run()
    app.button(key="remarks-save").click().run()
    assert "tag: cannot be 'mlflow.user'" in app.error[0].value
    app.multiselect(key="remarks-tags").set_value(["good", "kind=big"]).run()
    app.button(key="remarks-save").click().run()
    assert not app.exception
    tags = RunReader(workspace.tracking_uri()).run(job.id).tags
    assert (tags["mlflow.note.content"], tags["good"], tags["kind"], "old" in tags) == (
        "Diverged *late*", "", "big", False,
    )  # fmt: skip
    assert "Diverged *late*" in [text.value for text in app.text]
    app = open_page("runs", tag="good")
    table = app.dataframe[0].value
    assert (rows(app), list(table["note"]), [list(told) for told in table["tags"]]) == (
        ["a · seed 1"], ["Diverged *late*"], [["good", "kind=big"]],
    )  # fmt: skip


@pytest.mark.thorough
def test_a_note_stands_above_the_way_back_that_mlflow_shows(open_page: Open, workspace: Workspace) -> None:
    job = record(workspace)
    ours = notes.of_run(job.id, "first-steps.md")
    tag(workspace, job.id, **{names.TAG_NOTE: ours})
    app = open_page("runs", run=job.id)
    assert not [text.value for text in app.text if "scalebook ui" in text.value], "nobody wrote that"
    app.button(key="remarks-edit").click().run()
    assert app.text_area(key="remarks-note").value == ""
    app.text_area(key="remarks-note").set_value("Diverged").run()
    app.button(key="remarks-save").click().run()
    assert RunReader(workspace.tracking_uri()).run(job.id).tags[names.TAG_NOTE] == f"Diverged\n\n{ours}"


@pytest.mark.thorough
def test_tags_of_several_runs_are_added_and_removed_by_one_confirmation(open_page: Open, workspace: Workspace) -> None:
    first, second, third = (record(workspace, cell=cell) for cell in "abc")
    for job in (first, second):
        tag(workspace, job.id, old="", kind="small")
    write_remarks(
        RunReader(workspace.tracking_uri()), RunReader(workspace.tracking_uri()).run(first.id), "Kept", ["old"]
    )
    app = open_page("runs")
    app.session_state[key_of_table(app)] = {"selection": {"rows": [1, 2], "columns": [], "cells": []}}
    app.run()
    app.button(key="tags-ticked").click().run()
    assert app.button(key="tags-save").disabled
    assert app.multiselect(key="tags-remove").options == ["kind=small (of 1)", "old (of 2)"]
    app.multiselect(key="tags-add").set_value(["good", "mlflow.user"]).run()
    app.multiselect(key="tags-remove").set_value(["old"]).run()
    app.button(key="tags-save").click().run()
    assert "tag: cannot be 'mlflow.user'" in app.error[0].value
    app.multiselect(key="tags-add").set_value(["good", "kind=big"]).run()
    app.button(key="tags-save").click().run()
    assert not app.exception
    assert "Changed the tags of 2 runs." in [one.value for one in app.toast]
    read = RunReader(workspace.tracking_uri())
    assert [run_query.tags(read.run(job.id)) for job in (first, second, third)] == [["good", "kind=big"]] * 2 + [[]]
    assert run_query.note(read.run(first.id)) == "Kept"
    assert not [one for one in app.button if one.key == "tags-save"], "the dialog is closed"


def test_several_runs_are_deleted_after_a_question_and_living_ones_stay(open_page: Open, workspace: Workspace) -> None:
    kept, gone = record(workspace, cell="kept"), record(workspace, cell="gone")
    (gone.path / "process.json").unlink()  # this one's, which lives
    living = record(workspace, cell="living", state="running")
    app = open_page("runs")
    app.session_state[key_of_table(app)] = {"selection": {"rows": [0, 1], "columns": [], "cells": []}}
    app.run()
    app.button(key="delete-ticked").click().run()
    assert (gone.path.exists(), [text.value for text in app.text]) == (True, ["living · seed 1\ngone · seed 1"])
    app.button(key="delete-runs").click().run()
    assert not app.exception
    assert [job.path.exists() for job in (kept, gone, living)] == [True, False, True]
    assert rows(app) == ["living · seed 1", "kept · seed 1"]
    assert RunReader(workspace.tracking_uri()).client.get_run(gone.id).info.lifecycle_stage == "deleted"


@pytest.mark.parametrize("trials", [False, True])
def test_a_search_is_deleted_with_its_trials_or_without(open_page: Open, workspace: Workspace, trials: bool) -> None:
    spec = searches.spec()
    search = searches.folder(workspace, spec, searches.records(spec, trials=3))
    job = record(workspace, cell="batch-size")
    (job.path / "process.json").unlink()
    tag(workspace, job.id, **{names.TAG_PARENT: search.id, "trial": "1"})
    app = open_page("search")
    app.button(key="delete-searches").click().run()
    assert app.button(key="delete-chosen-searches").disabled
    app.multiselect(key="searches-to-delete").set_value([search.id]).run()
    app.toggle(key="trials-to-delete").set_value(trials).run()
    app.button(key="delete-chosen-searches").click().run()
    assert not app.exception
    assert "No search yet" in words(app)
    assert (search.path.exists(), job.path.exists()) == (False, not trials)


def logged(workspace: Workspace, run_id: str, width: str, **metrics: float) -> None:
    """Parameters and metrics of a stranger's model."""
    store = open_store(workspace)
    store.log_param(run_id, "model.width", width)
    store.log_param(run_id, "model.kind", "wide" if int(width) > 64 else "thin")
    for name, value in metrics.items():
        store.log_metric(run_id, name.replace("_", " "), value)


@pytest.fixture
def strange(workspace: Workspace) -> None:
    for number, (width, loss) in enumerate((("1024", 0.000012345), ("16", math.nan), ("123456789", math.inf))):
        logged(workspace, record(workspace, cell=f"c{number}").id, width, val_loss=loss, AUC_é=0.5 + number)


@pytest.mark.usefixtures("strange")
def test_columns_of_parameters_and_metrics_by_name_come_first_and_fit(open_page: Open) -> None:
    app = open_page("runs")
    app.multiselect(key="columns").set_value(["params.model.width", "val loss", "AUC é", "params.model.kind"]).run()
    table, order = app.dataframe[0].value, list(app.dataframe[0].proto.column_order)
    assert order[:4] == ["name", "state", "metric params.model.width", "metric val loss"]
    assert list(table["metric params.model.width"]) == [123456789.0, 16.0, 1024.0]
    assert list(table["metric val loss"]) == ["∞", "NaN", "1.2345e-05"], "what is no finite number is said"
    assert list(table["metric params.model.kind"]) == ["wide", "thin", "wide"]
    widths = {name: one.get("width") for name, one in json.loads(app.dataframe[0].proto.columns).items()}
    assert widths["metric params.model.width"] >= 9 * 7 + 16
    assert widths["metric AUC é"] >= 75


def test_why_stands_beside_the_state(open_page: Open, workspace: Workspace) -> None:
    record(workspace, cell="a", state="failed")
    order = list(open_page("runs").dataframe[0].proto.column_order)
    assert order[:3] == ["name", "state", "remark"], "in sight at 1280 pixels, whatever follows"


@pytest.mark.thorough
@pytest.mark.usefixtures("strange")
def test_runs_are_filtered_by_ranges_and_a_mistake_is_said(open_page: Open) -> None:
    app = open_page("runs")
    app.multiselect(key="by").set_value(["val loss", "params.model.width", "params.model.kind"]).run()
    assert len(rows(app)) == 3
    app.text_input(key="to val loss").set_value("1").run()
    assert rows(app) == ["c0 · seed 1"]
    app.text_input(key="to val loss").set_value("").run()
    app.text_input(key="from params.model.width").set_value("1e3").run()
    assert rows(app) == ["c2 · seed 1", "c0 · seed 1"]
    assert "2 runs: params.model.width at least 1000." in html(app)
    app.multiselect(key="is params.model.kind").set_value(["thin"]).run()
    assert "No matching run" in html(app)
    app.text_input(key="from params.model.width").set_value("1k").run()
    assert [one.value for one in app.error] == ["1k is not a number."]
    assert rows(app) == ["c1 · seed 1"]


@pytest.mark.usefixtures("strange")
def test_a_view_is_saved_opened_by_name_and_by_its_address_and_deleted(open_page: Open, workspace: Workspace) -> None:
    app = open_page("runs", sort="params.model.width", columns="val loss")
    assert rows(app) == ["c2 · seed 1", "c0 · seed 1", "c1 · seed 1"]
    app.multiselect(key="by").set_value(["params.model.width"]).run()
    app.text_input(key="to params.model.width").set_value("2000").run()
    app.text_input(key="view-name").set_value("Small [ones](http://x)").run()
    app.button(key="view-save").click().run()
    (view,) = run_query.saved_views(workspace)
    assert view.parameters == {"by": ["params.model.width"], "to params.model.width": ["2000"],
                               "columns": ["val loss"], "sort": ["params.model.width"]}  # fmt: skip
    other = open_page("runs", find="c2", columns="AUC é")
    assert rows(other) == ["c2 · seed 1"]
    (address,) = re.findall(r'<table class="sb"><tr><td><a href="([^"]*)">Small \[ones\]\(http://x\)</a>', html(other))
    assert parse_qs(urlsplit(unescape(address)).query) == view.parameters
    linked = AppTest.from_file(MAIN, default_timeout=30)
    for key, values in view.parameters.items():
        linked.query_params[key] = values
    linked.switch_page(RUNS.script)
    assert rows(linked.run()) == ["c0 · seed 1", "c1 · seed 1"]
    other.button(key=f"delete view {view.name}").click().run()
    assert run_query.saved_views(workspace) == []


def test_a_views_file_that_is_broken_is_said_and_the_list_is_shown(open_page: Open, workspace: Workspace) -> None:
    record(workspace, cell="a")
    run_query.views_file(workspace).write_text("{")
    app = open_page("runs")
    assert rows(app) == ["a · seed 1"]
    assert "views.json" in app.error[0].value
