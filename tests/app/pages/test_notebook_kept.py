"""What was written, typed or trained under a notebook stays: undo, drafts, results of what is renamed."""

import pytest

from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments import catalogue
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.identity import config_hash
from scalebook.training.notebook import edit, store
from scalebook.training.notebook.cells import Notebook
from scalebook.training.notebook.read_results import results
from scalebook.training.tracking.run_reader import RunReader
from tests.app.pages.conftest import TEXT, Open, html
from tests.app.pages.test_notebook_page import press
from tests.app.recorded import record

pytestmark = pytest.mark.long


def test_a_note_is_deleted_after_a_question_and_undo_brings_it_back(open_page: Open, workspace: Workspace) -> None:
    path = workspace.root / "first-steps.md"
    app = open_page()
    assert app.button(key="notebook-undo").disabled
    press(press(app, "Edit"), "Delete")
    assert path.read_text(encoding="utf-8") == TEXT
    assert "This removes <b>Question</b> from the notebook" in html(app)
    app.button(key="delete-cell").click().run()
    assert "Does staleness hurt?" not in path.read_text(encoding="utf-8")
    assert not [one for one in app.button if one.label == "Save"]  # the editor is closed
    press(app, "Undo")
    assert path.read_text(encoding="utf-8") == TEXT
    assert app.button(key="notebook-undo").disabled


@pytest.mark.thorough
def test_a_comparison_and_an_experiment_are_deleted_after_a_question(open_page: Open, workspace: Workspace) -> None:
    path = workspace.root / "first-steps.md"
    path.write_text(f"{TEXT}\n```yaml comparison=both\nruns: [pixelcnn-async-2]\n```\n", encoding="utf-8")
    app = open_page()
    app.menu_button(key="more-both").click("Delete").run()
    assert "comparison=both" in path.read_text(encoding="utf-8")
    app.button(key="delete-cell").click().run()
    assert path.read_text(encoding="utf-8") == f"{TEXT}\n"
    app.menu_button(key="more-pixelcnn-async-2").click("Delete").run()
    assert path.read_text(encoding="utf-8") == f"{TEXT}\n"
    app.button(key="delete-cell").click().run()
    assert "experiment=" not in path.read_text(encoding="utf-8")
    press(app, "Undo")
    assert path.read_text(encoding="utf-8") == f"{TEXT}\n"


def test_any_earlier_state_can_be_returned_to(open_page: Open, workspace: Workspace) -> None:
    path = workspace.root / "first-steps.md"
    app = open_page()
    for text in ("First.", "Second.", "Third."):
        press(app, "Edit")
        app.text_area[0].set_value(f"{text}\n\n").run()
        press(app, "Save")
    press(app, "History")
    states = next(one for one in app.selectbox if one.label == "State")
    assert [one.split(",")[0] for one in states.options] == ["3", "2", "1"]
    told = [one.partition(": ")[2] for one in states.options]
    assert told == ["note “Second.” changed", "note “First.” changed", "the oldest one"]
    states.select_index(1).run()
    assert any("-Third." in one.value and "+First." in one.value for one in app.code)
    app.button(key="earlier-return").click().run()
    assert "First." in path.read_text(encoding="utf-8")
    press(app, "Undo")
    assert path.read_text(encoding="utf-8") == TEXT


def test_a_half_typed_note_is_there_after_a_reload_and_labelled(open_page: Open, workspace: Workspace) -> None:
    app = open_page()
    press(app, "Edit").text_area[0].set_value("Half a thou").run()
    press(press(app, "Cancel"), "Add a note").text_area[0].set_value("A new *one*").run()
    app = open_page()
    assert not app.text_area
    assert [one.label for one in app.button].count("Continue") == 1  # what was cancelled is gone
    assert any("**Draft** of a new note, last changed just now" in one.value for one in app.caption)
    assert "A new *one*" in html(app)
    assert press(app, "Continue").text_area[0].value == "A new *one*"
    assert press(open_page(), "Continue").text_area[0].value == "A new *one*"
    press(app, "Save")
    assert "A new *one*" in (workspace.root / "first-steps.md").read_text(encoding="utf-8")
    assert not any("**Draft**" in one.value for one in open_page().caption)


@pytest.mark.thorough
def test_a_draft_of_a_note_that_has_changed_since_is_not_lost(open_page: Open, workspace: Workspace) -> None:
    path = workspace.root / "first-steps.md"
    press(open_page(), "Edit").text_area[0].set_value("Mine, half").run()
    assert any("**Draft** of the note below" in one.value for one in open_page().caption)
    path.write_text(TEXT.replace("Does staleness hurt?", "Theirs."), encoding="utf-8")
    app = open_page()
    assert any("**Draft** of a note that has since changed" in one.value for one in app.caption)
    press(press(app, "Continue"), "Save")
    assert path.read_text(encoding="utf-8").endswith("Mine, half\n\n")
    assert "Theirs." in path.read_text(encoding="utf-8")
    press(open_page(), "Edit").text_area[0].set_value("Not wanted").run()
    app = press(open_page(), "Discard")
    assert not any("**Draft**" in one.value for one in app.caption)
    assert list(workspace.cache.glob("note-draft-*")) == []


def test_a_note_that_cannot_be_saved_stays_in_its_editor(open_page: Open, workspace: Workspace) -> None:
    app = open_page()
    press(app, "Edit").text_area[0].set_value("```\nnot closed\n").run()
    press(app, "Save")
    assert (workspace.root / "first-steps.md").read_text(encoding="utf-8") == TEXT
    assert app.text_area[0].value == "```\nnot closed\n"
    assert any("would include the cells that follow" in one.value for one in app.toast)


@pytest.mark.thorough
def test_a_renamed_experiment_keeps_its_results_and_undo_does_too(open_page: Open, workspace: Workspace) -> None:
    path = workspace.root / "first-steps.md"
    more = (
        "\n```yaml comparison=both\nruns: [pixelcnn-async-2]\n```\n\n"
        "```yaml search=sizes\nexperiment: pixelcnn-async-2\nobjective: val/loss\n"
        "space:\n  batch_size: {powers_of_two: [16, 64]}\n```\n"
    )
    path.write_text(TEXT + more, encoding="utf-8")
    cell = store.read(path).notebook.experiments()[0]
    now = config_hash(Experiment.read(cell.config, catalogue.describe(workspace)))
    first, second = (record(workspace, seed=seed, config_hash=now) for seed in (1, 2))
    app = open_page("compose", notebook="first-steps", cell="pixelcnn-async-2")
    next(one for one in app.text_input if one.label == "Name").set_value("two-workers").run()
    assert any("keeps its results" in one.value for one in app.caption)
    app.button(key="compose-save").click().run()
    notebook = store.read(path).notebook
    assert [one.name for one in notebook.experiments()] == ["two-workers"]
    assert notebook.comparisons()[0].runs == ["two-workers"]
    assert notebook.searches()[0].experiment == "two-workers"
    for shown in (html(open_page()), html(press(open_page(), "Undo"))):
        assert f"/runs?run={first.id}" in shown
        assert f"/runs?run={second.id}" in shown
        assert "stale: " not in shown
        assert "not run yet" in shown.split("sizes</h2>")[1]
        assert "no such experiment" not in shown


def test_results_go_to_one_heir_only_and_never_from_a_cell_that_is_there(open_page: Open, workspace: Workspace) -> None:
    path = workspace.root / "first-steps.md"
    stored = store.read(path)
    description = catalogue.describe(workspace)
    cell = stored.notebook.experiments()[0]
    record(workspace, seed=1, config_hash=config_hash(Experiment.read(cell.config, description)))
    twin = edit.put_experiment(stored.notebook, "twin", cell.config)
    reader = RunReader(workspace.tracking_uri())

    def have(notebook: Notebook) -> list[str]:
        """The experiments that have a result."""
        return [
            one.name
            for one in notebook.experiments()
            if results(reader, path.name, one, description, notebook, [1])[0].run is not None
        ]

    assert have(twin) == ["pixelcnn-async-2"]
    assert have(edit.rename(twin, "pixelcnn-async-2", "mine")) == ["mine"]
    changed = edit.put_experiment(edit.rename(twin, "pixelcnn-async-2", "mine"), "mine", {**cell.config, "threads": 2})
    assert have(changed) == ["twin"]
