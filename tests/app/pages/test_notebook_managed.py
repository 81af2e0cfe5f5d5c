"""The notebook as a whole in the browser, and its notes: renamed, duplicated, deleted, brought back, moved."""

from dataclasses import replace
from pathlib import Path

import pytest

from scalebook.app.search.data import of_cell
from scalebook.app.shared import drafts
from scalebook.app.shared.drafts import SavedDraft
from scalebook.training.base.files import record_folder
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments import catalogue
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.identity import config_hash
from scalebook.training.jobs import job_requests
from scalebook.training.notebook import store
from scalebook.training.tracking import names, notes
from scalebook.training.tracking.run_reader import RunReader
from scalebook.training.tracking.run_start import experiment_id
from tests.app import searches
from tests.app.pages.conftest import TEXT, Open, html, words
from tests.app.pages.test_notebook_page import press
from tests.app.recorded import record

pytestmark = pytest.mark.long


def cells(path: Path) -> list[str]:
    return [getattr(cell, "name", cell.source.strip()) for cell in store.read(path).notebook.cells]


def test_a_renamed_notebook_keeps_all_that_refers_to_it(
    open_page: Open, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_requests, "ensure", lambda _: None)
    path = workspace.root / "first-steps.md"
    cell = store.read(path).notebook.experiments()[0]
    job = record(
        workspace, seed=1, config_hash=config_hash(Experiment.read(cell.config, catalogue.describe(workspace)))
    )
    spec = searches.spec()
    search = searches.folder(workspace, spec, searches.records(spec, trials=3))
    drafts.save(workspace, SavedDraft("first-steps", "pixelcnn-async-2", "", 1, {"model": "Half"}))
    press(press(open_page(), "Edit"), "Save")
    press(open_page(), "Add a note").text_area[0].set_value("Half a thou").run()
    app = open_page()
    app.menu_button(key="notebook-more").click("Rename").run()
    app.text_input(key="rename-title").set_value("Second thoughts").run()
    app.text_input(key="rename-file").set_value("../x").run()
    app.button(key="rename-notebook").click().run()
    assert app.toast[0].value.startswith("file name: cannot be '../x'")
    app.text_input(key="rename-file").set_value("thoughts").run()
    app.button(key="rename-notebook").click().run()
    assert not app.exception
    assert [one.name for one in workspace.root.glob("*.md")] == ["thoughts.md"]
    assert app.query_params["notebook"] == "thoughts"
    assert app.selectbox[0].options == ["Second thoughts"]
    assert f"/runs?run={job.id}" in html(app)
    assert "finished" in html(app)
    assert "Half a thou" in html(app)
    found = of_cell(workspace, "thoughts.md", "batch-size")
    assert found is not None
    assert (found.id, found.folder.may_run()) == (search.id, search.may_run())
    saved = drafts.load(workspace, SavedDraft, "thoughts", "pixelcnn-async-2")
    assert saved is not None
    assert saved.draft.config == {"model": "Half"}
    reader = RunReader(workspace.tracking_uri())
    assert reader.client.get_experiment_by_name("thoughts") is not None
    assert reader.runs(notebook="first-steps.md") == []
    again = job_requests.again(workspace, job, catalogue.describe(workspace))
    assert reader.run(again.id).tags[names.TAG_NOTEBOOK] == "thoughts.md"


@pytest.mark.thorough
def test_a_notebook_whose_runs_go_on_keeps_its_file_name(open_page: Open, workspace: Workspace) -> None:
    record(workspace, state="running")
    app = open_page()
    app.menu_button(key="notebook-more").click("Rename").run()
    app.text_input(key="rename-title").set_value("Other").run()
    app.text_input(key="rename-file").set_value("other").run()
    app.button(key="rename-notebook").click().run()
    assert "cannot change while first-steps.md has active runs" in app.toast[0].value
    assert (workspace.root / "first-steps.md").read_text(encoding="utf-8") == TEXT
    app.text_input(key="rename-file").set_value("first-steps").run()
    app.button(key="rename-notebook").click().run()
    assert store.read(workspace.root / "first-steps.md").notebook.title == "Other"


def test_a_duplicate_stands_beside_it_and_is_opened(open_page: Open, workspace: Workspace) -> None:
    record(workspace)
    app = open_page()
    app.menu_button(key="notebook-more").click("Duplicate").run()
    assert app.query_params["notebook"] == "first-steps-2"
    copy = (workspace.root / "first-steps-2.md").read_text(encoding="utf-8")
    assert copy == TEXT.replace("title: First steps", 'title: "First steps (copy)"')
    assert "not run yet" in html(app)


def test_a_deleted_notebook_is_asked_about_and_can_be_brought_back(open_page: Open, workspace: Workspace) -> None:
    path = workspace.root / "first-steps.md"
    (workspace.root / "second.md").write_text("# The second\n", encoding="utf-8")
    app = open_page("", notebook="first-steps")
    app.menu_button(key="notebook-more").click("Delete").run()
    assert path.exists()
    assert "Its runs are kept in MLflow" in words(app)
    app.button(key="delete-notebook").click().run()
    assert not path.exists()
    assert "No notebook called first-steps" in html(app)
    app.button(key="bring-back-here").click().run()
    assert path.read_text(encoding="utf-8") == TEXT
    assert "Does staleness hurt?" in words(app)
    app.menu_button(key="notebook-more").click("Delete").run()
    app.button(key="delete-notebook").click().run()
    app = open_page("", notebook="second")
    app.menu_button(key="notebook-more").click("Deleted notebooks").run()
    assert app.selectbox[1].options == ["First steps (first-steps.md), just now"]
    app.button(key="bring-back").click().run()
    assert path.read_text(encoding="utf-8") == TEXT
    assert not app.exception


def test_a_note_is_put_above_the_first_cell_and_moved(open_page: Open, workspace: Workspace) -> None:
    path = workspace.root / "first-steps.md"
    path.write_text(TEXT.replace("# Question\n\nDoes staleness hurt?\n\n", ""), encoding="utf-8")
    app = open_page()
    app.menu_button(key="more-pixelcnn-async-2").click("Add a note above").run()
    app.text_area[0].set_value("Why?").run()
    assert [element.value for element in app.markdown if element.value == "Why?"] == ["Why?"], "the preview"
    press(app, "Save")
    assert cells(path) == ["Why?", "pixelcnn-async-2"]
    menu = next(menu for menu in app.menu_button if str(menu.key).startswith("more-note-"))
    menu.click("Move down").run()
    assert cells(path) == ["pixelcnn-async-2", "Why?"]
    menu = next(menu for menu in app.menu_button if str(menu.key).startswith("more-note-"))
    menu.click("Delete").run()
    assert cells(path) == ["pixelcnn-async-2", "Why?"]
    app.button(key="delete-cell").click().run()
    assert cells(path) == ["pixelcnn-async-2"]


@pytest.mark.thorough
def test_the_draft_of_a_new_note_stays_in_its_place_when_a_cell_comes_above(
    open_page: Open, workspace: Workspace
) -> None:
    path = workspace.root / "first-steps.md"
    press(open_page(), "Add a note").text_area[0].set_value("At the end").run()
    path.write_text("```yaml experiment=new\nconfig: {}\n```\n\n" + path.read_text(encoding="utf-8"), encoding="utf-8")
    press(press(open_page(), "Continue"), "Save")
    assert cells(path)[-1] == "At the end"


@pytest.mark.thorough
def test_the_experiments_of_a_renamed_notebook_are_called_after_it_in_mlflow(
    open_page: Open, workspace: Workspace
) -> None:
    client = RunReader(workspace.tracking_uri()).client
    old, new = "first-steps.md", "thoughts.md"
    home = experiment_id(client, workspace, "first-steps", old)
    trials = experiment_id(client, workspace, "trials of batch-size: first-steps", old, "batch-size")
    search = searches.folder(workspace, searches.spec(), [])
    search.write(replace(search.request(), trials_experiment=trials))
    record_folder.forget_records()
    job = record(workspace)
    app = open_page()
    app.menu_button(key="notebook-more").click("Rename").run()
    app.text_input(key="rename-file").set_value("thoughts").run()
    app.button(key="rename-notebook").click().run()
    assert not app.exception
    found = [client.get_experiment(one) for one in (home, trials)]
    assert [one.name for one in found] == ["thoughts", "trials of batch-size: thoughts"]
    notes_ = [notes.of_experiment(home, new), notes.of_experiment(trials, new, "batch-size")]
    assert [one.tags[names.TAG_NOTE] for one in found] == notes_
    assert client.get_run(job.id).data.tags[names.TAG_SOURCE] == new
