"""The form of an experiment trains nothing but what it shows, and loses nothing that was typed."""

import os
import time

import pytest

from scalebook.training.base.workspace import Workspace
from scalebook.training.notebook import store
from tests.app.pages.compose_form import as_yaml, choice, config, off
from tests.app.pages.conftest import TEXT, Open, codes, html, number

pytestmark = pytest.mark.long


REFUSED = [
    ("Batch size per worker", "0", "0 is out of bounds. Use a whole number above 0."),
    ("Batch size per worker", "1,5", "'1,5' is not a whole number."),
    ("Batch size per worker", "2.5", "2.5 is not a whole number."),
    ("Learning rate", "-1", "-1.0 is out of bounds."),
    ("Learning rate", "abc", "'abc' is not a number."),
    ("Epochs", "0", "0 is out of bounds. Use a whole number of at least 1."),
    ("Epochs", "", "Is empty. Use a whole number of at least 1."),
    ("Workers", "many", "'many' is not a whole number."),
    ("Workers", "1025", "1025 is out of bounds."),
    ("Seeds", "1.5", "1.5 is not a whole number."),
    ("First seed", "-1", "-1 is out of bounds."),
]


def test_a_field_that_holds_no_such_number_says_so_and_nothing_runs(open_page: Open) -> None:
    app = open_page("compose", notebook="first-steps", cell="pixelcnn-async-2")
    for label, typed, said in REFUSED:
        before = number(app, label).box.value
        number(app, label).set_value(typed).run()
        assert [one.value for one in app.error if said in one.value], (label, typed, [one.value for one in app.error])
        assert off(app) == (True, True), (label, typed)
        assert any("Fix this to run or save" in one.value for one in app.caption)
        assert number(app, label).box.value == typed
        number(app, label).set_value(before).run()
        assert off(app) == (False, False)


def test_numbers_are_read_as_they_are_typed(open_page: Open) -> None:
    app = open_page("compose", notebook="first-steps")
    number(app, "Batch size per worker").set_value("1e3").run()
    number(app, "Learning rate").set_value("2.5e-4").run()
    pick_budget = next(one for one in app.segmented_control if one.label == "Budget")
    pick_budget.set_value("time").run()
    number(app, "Minutes").set_value("0.5").run()
    assert config(app)["data"]["init_args"]["batch_size"] == 1000
    assert config(app)["optimizer"]["init_args"]["lr"] == 0.00025
    assert config(app)["trainer"]["max_time"] == "00:00:00:30"
    number(app, "Minutes").set_value("soon").run()
    assert off(app) == (True, True)


def test_a_number_that_is_refused_is_there_again_in_a_new_session(open_page: Open) -> None:
    app = open_page("compose", notebook="first-steps")
    number(app, "Epochs").set_value("1,5").run()
    number(app, "Learning rate").set_value("fast").run()
    again = open_page("compose", notebook="first-steps")
    assert (number(again, "Epochs").value, number(again, "Learning rate").value) == ("1,5", "fast")
    assert off(again) == (True, True)


def test_a_click_on_run_that_comes_with_a_mistake_runs_nothing(open_page: Open, workspace: Workspace) -> None:
    app = open_page("compose", notebook="first-steps", cell="pixelcnn-async-2")
    number(app, "Batch size per worker").set_value("0")
    app.button(key="compose-run").click().run()  # one rerun with both, as when the click takes the box's focus away
    assert not app.exception
    assert list(workspace.jobs.iterdir()) == []
    assert any("Not run" in one.value for one in app.toast)
    number(app, "Batch size per worker").set_value("4").run()
    assert list(workspace.jobs.iterdir()) == []  # and not later, either


def test_a_cell_or_notebook_that_is_not_there_is_said_and_no_form_shown(open_page: Open) -> None:
    app = open_page("compose", notebook="first-steps", cell="gone")
    assert "First steps has no experiment called gone" in html(app)
    assert not app.title
    assert not app.text_input
    assert "No notebook called other" in html(open_page("compose", notebook="other"))


def test_an_empty_choice_says_in_words_what_it_means(open_page: Open) -> None:
    app = open_page("compose", notebook="first-steps")
    as_yaml(app, "model: {class_path: Foo, init_args: {a: 1}}\ndata: Digits\noptimizer: torch.optim.Adam\n")
    assert choice(app, "Model").proto.placeholder == "Foo"
    assert choice(app, "Schedule").proto.placeholder == "constant"
    assert off(app) == (True, True)


def test_a_draft_says_that_it_is_one_and_can_be_discarded(open_page: Open, workspace: Workspace) -> None:
    app = open_page("compose", notebook="first-steps", cell="pixelcnn-async-2")
    number(app, "Workers").set_value(7).run()
    assert not any("**Draft**" in one.value for one in app.caption)  # this session knows what it has typed
    (path,) = workspace.cache.glob("draft-*")
    os.utime(path, (time.time() - 3700,) * 2)
    again = open_page("compose", notebook="first-steps", cell="pixelcnn-async-2")
    assert any("**Draft** of this experiment, last changed 1 h ago" in one.value for one in again.caption)
    next(one for one in again.button if one.label == "Start over").click().run()
    assert number(again, "Workers").value == 2
    assert not any("**Draft**" in one.value for one in again.caption)


def test_a_text_that_is_no_yaml_is_not_saved_and_not_lost(open_page: Open, workspace: Workspace) -> None:
    before = (workspace.root / "first-steps.md").read_text(encoding="utf-8")
    app = open_page("compose", notebook="first-steps", cell="pixelcnn-async-2")
    app.segmented_control(key="compose-mode").set_value("YAML").run()
    broken = "model: PixelCNN\ndata: {class_path: Digits\ntrainer: [1\n"
    next(one for one in app.text_area if one.label == "Config").set_value(broken)
    app.button(key="compose-save").click().run()
    assert off(app) == (True, True)
    assert any(one.value.startswith("line 3, column 8: is not YAML") for one in app.error)
    assert (workspace.root / "first-steps.md").read_text(encoding="utf-8") == before
    assert not any("Saved" in one.value for one in app.toast)
    app.segmented_control(key="compose-mode").set_value("Form").run()  # which could not show it
    assert next(one for one in app.text_area if one.label == "Config").value == broken
    assert any("Fix it first" in one.value for one in app.toast)
    again = open_page("compose", notebook="first-steps", cell="pixelcnn-async-2")
    assert next(one for one in again.text_area if one.label == "Config").value == broken
    assert any("**Draft** of this experiment" in one.value for one in again.caption)


def test_what_is_typed_last_is_taken_along_to_the_other_way_of_editing(open_page: Open) -> None:
    app = open_page("compose", notebook="first-steps")
    number(app, "Epochs").set_value(9)
    app.segmented_control(key="compose-mode").set_value("YAML").run()
    text = next(one for one in app.text_area if one.label == "Config")
    assert "max_epochs: 9" in str(text.value)
    text.set_value(str(text.value).replace("max_epochs: 9", "max_epochs: 8"))
    app.segmented_control(key="compose-mode").set_value("Form").run()
    assert number(app, "Epochs").value == 8


def test_far_more_workers_than_cores_are_confirmed_beside_the_button(open_page: Open) -> None:
    app = open_page("compose", notebook="first-steps", cell="pixelcnn-async-2")
    assert off(app) == (False, False)
    number(app, "Workers").set_value("1000").run()
    assert any(one.value.startswith("1,000 workers are too many for ") for one in app.warning)
    assert off(app) == (True, False), "it may be saved"
    next(one for one in app.checkbox if one.label == "Run anyway").check().run()
    assert off(app) == (False, False)
    number(app, "Workers").set_value("999").run()
    assert off(app) == (True, False), "that was another question"


def edited_by_both(open_page: Open, workspace: Workspace) -> str:
    """A draft with 9 epochs of an experiment that has 7 in the file by now; returns the file's text."""
    app = open_page("compose", notebook="first-steps", cell="pixelcnn-async-2")
    number(app, "Epochs").set_value(9).run()
    theirs = TEXT.replace("max_epochs: 5", "max_epochs: 7")
    (workspace.root / "first-steps.md").write_text(theirs, encoding="utf-8")
    return theirs


def test_two_edits_of_one_experiment_are_both_kept_as_the_button_says(open_page: Open, workspace: Workspace) -> None:
    theirs = edited_by_both(open_page, workspace)
    app = open_page("compose", notebook="first-steps", cell="pixelcnn-async-2")  # reloaded meanwhile
    assert number(app, "Epochs").value == 9
    assert any("has changed since you started this draft" in one.value for one in app.caption)
    app.button(key="compose-save").click().run()
    assert (workspace.root / "first-steps.md").read_text(encoding="utf-8") == theirs
    assert app.button(key="keep-both").label == "Keep both, mine as pixelcnn-async-3"
    app.button(key="keep-both").click().run()
    cells = {cell.name: cell.config for cell in store.read(workspace.root / "first-steps.md").notebook.experiments()}
    assert {name: config["trainer"]["max_epochs"] for name, config in cells.items()} == {
        "pixelcnn-async-2": 7, "pixelcnn-async-3": 9,
    }  # fmt: skip
    assert sorted(path.name for path in workspace.root.glob("*.md")) == ["first-steps.md"]
    assert list(workspace.cache.glob("draft-*")) == []


BAD = """trainer:
  max_epochs: 3
  max_epocs: 4
model:
  class_path: PixelCNN
  init_args:
    layers: -1
data: Digits
"""


def test_each_mistake_of_a_text_is_said_once_with_its_line(open_page: Open) -> None:
    app = open_page("compose", notebook="first-steps", cell="pixelcnn-async-2")
    app.segmented_control(key="compose-mode").set_value("YAML").run()
    next(one for one in app.text_area if one.label == "Config").set_value(BAD)
    app.button(key="compose-save").click().run()
    shown = [one.value for one in (*app.error, *app.caption, *app.toast)]
    for line, key in ((3, "max_epocs"), (7, "layers")):
        (said,) = [text for text in shown if key in text]
        assert said.startswith(f"line {line}, ")
    assert [one for one in codes(app) if "max_epocs" in one] == [], "the text stands in its field already"


def test_a_text_that_is_no_config_has_no_figures_of_another_one(open_page: Open) -> None:
    app = open_page("compose", notebook="first-steps", cell="pixelcnn-async-2")
    assert "effective batch" in html(app)
    app.segmented_control(key="compose-mode").set_value("YAML").run()
    next(one for one in app.text_area if one.label == "Config").set_value("model: [").run()
    assert "effective batch" not in html(app)
    assert "learning rate" not in html(app)
    assert len([one for one in app.error if "is not YAML" in one.value]) == 1
    assert not any("is not YAML" in one.value for one in app.caption)


def test_the_mode_is_in_the_address_and_so_kept_by_a_reload(open_page: Open) -> None:
    app = open_page("compose", notebook="first-steps", cell="pixelcnn-async-2")
    app.segmented_control(key="compose-mode").set_value("YAML").run()
    assert app.query_params["mode"] == "YAML"
    again = open_page("compose", notebook="first-steps", cell="pixelcnn-async-2", mode="YAML")
    assert [one.label for one in again.text_area] == ["Config"]
    again.segmented_control(key="compose-mode").set_value("Form").run()
    assert "mode" not in again.query_params
