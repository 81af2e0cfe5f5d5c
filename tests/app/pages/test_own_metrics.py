"""A metric that is not of all workers' data together, under DDP, is marked wherever a figure of it stands."""

from dataclasses import replace

import pytest
from streamlit.testing.v1 import AppTest

from scalebook.app import resources
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments.search.types import Objective
from scalebook.training.notebook import store
from scalebook.training.notebook.export.gathering import gather
from scalebook.training.notebook.export.html_file import as_html
from scalebook.training.tracking import names
from scalebook.training.tracking.own_metrics import SIGN, WORDS
from scalebook.training.tracking.run_start import open_store
from tests.app import searches
from tests.app.pages.conftest import TEXT, Open, html, words
from tests.app.recorded import record

METRIC = "val/bits_per_dim"


@pytest.fixture
def own(workspace: Workspace) -> str:
    """The first of two seeds logs its loss by worker; its id."""
    run = record(workspace).id
    record(workspace, seed=2)
    open_store(workspace).set_tag(run, names.TAG_OWN, f"other, {METRIC}")
    return run


def test_the_words_are_true_of_one_workers_value_and_of_a_mean_of_all_workers_values() -> None:
    assert "the value of worker 0 only" in WORDS
    assert "the mean of one value per worker" in WORDS
    assert "missing" not in WORDS, "in a mean nobody's data are"


def signs(app: AppTest) -> int:
    return html(app).count(f">{SIGN}</abbr>")


def test_the_runs_own_page_and_its_experiments_card_mark_its_figures(open_page: Open, own: str) -> None:
    page = open_page("runs", run=own)
    assert signs(page) == 2, "best and final"
    assert WORDS in html(page), "the tooltip"
    assert f"{SIGN} {WORDS}" in words(page), "what the sign in the charts' titles means"
    assert signs(open_page("", notebook="first-steps")) == 2, "of seed 1, not of seed 2"


def test_runs_and_compare_mark_them(open_page: Open, workspace: Workspace, own: str) -> None:
    app = open_page("runs")
    table = app.dataframe[0].value
    assert list(table["own"]) == ["", METRIC]
    other = next(run.id for run in resources.all_runs() if run.id != own)
    compared = open_page("compare", runs=f"{own},{other}")
    assert signs(compared) == 2
    assert f"{SIGN} {WORDS}" in words(compared)
    assert signs(open_page("compare", runs=other)) == 0


def test_the_best_of_a_search_is_marked_on_its_card_and_its_page(open_page: Open, workspace: Workspace) -> None:
    path = workspace.root / "first-steps.md"
    body = "experiment: pixelcnn-async-2\nobjective: val/loss\nspace: {batch_size: [16, 32]}\n"
    path.write_text(f"{TEXT}\n```yaml search=batch-size\n{body}```\n", encoding="utf-8")
    run = record(workspace).id
    spec = searches.spec((searches.BATCH, searches.RATE), trials=8)
    told = [replace(one, runs={1: run}) for one in searches.records(spec, 8)]
    search = searches.folder(workspace, spec, told)
    assert signs(open_page("", notebook="first-steps")) == 0
    assert WORDS not in words(open_page("search", search=search.id))
    open_store(workspace).set_tag(run, names.TAG_OWN, "val/loss")
    assert signs(open_page("", notebook="first-steps")) == 1
    page = open_page("search", search=search.id)
    assert f"{SIGN} val/loss. {WORDS}" in words(page)


def test_a_search_s_table_and_its_export_mark_the_trials_by_name(open_page: Open, workspace: Workspace) -> None:
    """Also what it took to bring such a metric to the target; trials of other strategies are not marked."""
    path = workspace.root / "first-steps.md"
    body = "experiment: pixelcnn-async-2\nobjective: [val/loss, seconds]\ntarget: 2\nspace: {batch_size: [16, 32]}\n"
    path.write_text(f"{TEXT}\n```yaml search=batch-size\n{body}```\n", encoding="utf-8")
    objectives = (Objective("val/loss", True), Objective("seconds", True))
    spec = replace(
        searches.spec((searches.BATCH, searches.RATE), trials=8), objectives=objectives, pruner="none", target=2.0
    )
    told = [replace(one, runs={1: record(workspace).id}, values=(0.5 + one.number, 10.0))
            for one in searches.records(spec, 2)]  # fmt: skip
    told = [replace(one, state="finished") for one in told]
    search = searches.folder(workspace, spec, told)
    first, client = told[0].runs[1], open_store(workspace)
    for one in told:
        client.set_tag(one.runs[1], names.TAG_PARENT, search.id)

    def table() -> list[str]:
        (found,) = [one.value for one in open_page("search", search=search.id, view="Table").dataframe]
        return list(found["own"])

    def exported() -> str:
        return as_html(gather(workspace, resources.reader(), store.read(path), resources.description()))

    assert table() == ["", ""]
    assert WORDS not in exported()
    client.set_tag(first, names.TAG_OWN, "other, val/loss")
    assert table() == ["val/loss, seconds", ""]
    text = exported()
    assert f"{SIGN} {WORDS}" in text
    assert text.count(f" {SIGN}</td>") == 2
    assert text.count(f"Best: val/loss 0.5000 {SIGN} at") == 1


def test_the_export_marks_them(workspace: Workspace, open_page: Open, own: str) -> None:
    open_page()
    path = workspace.root / "first-steps.md"
    document = gather(workspace, resources.reader(), store.read(path), resources.description())
    text = as_html(document)
    assert text.count(f" {SIGN}</td>") == 2
    assert f"{SIGN} {WORDS}" in text
