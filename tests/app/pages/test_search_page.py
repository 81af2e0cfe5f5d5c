"""Setting up a search and looking at one, without a browser. Nothing is trained; searches are made as the driver leaves
them."""

import shutil
import time
from dataclasses import replace
from typing import Any

import pytest
import streamlit
from streamlit.testing.v1 import AppTest

from scalebook.app import resources
from scalebook.app.search import page
from scalebook.app.shared.what_it_logs import LABEL
from scalebook.training.base.files.records import save
from scalebook.training.base.processes import ProcessId
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments import logged_metrics
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.logged_metrics import LoggedMetrics
from scalebook.training.experiments.model_parameters import kept_at
from scalebook.training.experiments.search.types import Objective
from scalebook.training.jobs import supervisor_handle
from scalebook.training.notebook import store
from scalebook.training.search import search_requests
from scalebook.training.search.search_folder import DriverProcess, SearchFolder, SearchResult
from tests.app.pages.conftest import TEXT, Open, codes, has_number, html, number, words
from tests.app.searches import BATCH, RATE, folder, records, spec

pytestmark = pytest.mark.long

CELL = "pixelcnn-async-2"
SEARCH = """
```yaml search=batch-size
experiment: pixelcnn-async-2
objective: val/loss
space:
  batch_size: {powers_of_two: [16, 1024]}   # a comment of the person
  learning_rate: {log_uniform: [0.001, 1.0]}
trials: 1000
```
"""


@pytest.fixture(autouse=True)
def nobody_is_woken(monkeypatch: pytest.MonkeyPatch) -> list[Workspace]:
    """The supervisor that a button would start; it belongs to the journeys in a browser."""
    woken: list[Workspace] = []
    monkeypatch.setattr(supervisor_handle, "ensure", woken.append)
    return woken


def setting_up(open_page: Open, **parameters: str) -> AppTest:
    return open_page("search", notebook="first-steps", **parameters)


def press(app: AppTest, label: str) -> AppTest:
    return next(one for one in app.button if one.label == label).click().run()


def preset(app: AppTest, name: str) -> AppTest:
    return next(one for one in app.button if str(one.key).endswith(f"choose-{name}")).click().run()


def box(app: AppTest, label: str) -> Any:
    return next(one for one in app.selectbox if one.label == label)


def cell_text(app: AppTest) -> str:
    return str(next(one for one in codes(app) if "space:" in one))


def made(workspace: Workspace, trials: int = 8, **changes: Any) -> SearchFolder:
    search = spec((BATCH, RATE), trials=trials, **changes)
    return folder(workspace, search, records(search, trials))


def test_an_ended_search_that_is_resumed_elsewhere_is_seen(
    open_page: Open, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    fragment, watched, repeated = streamlit.fragment, list[bool](), dict[str, Any]()

    def noting(draw: Any, *, run_every: Any = None) -> Any:
        repeated[draw.__name__] = run_every
        return fragment(draw, run_every=run_every)

    monkeypatch.setattr(streamlit, "fragment", noting)
    monkeypatch.setattr(page, "watch_changes", lambda: watched.append(True))
    search = made(workspace)
    search.write(SearchResult("stopped", time.time(), "stopped on request"))
    open_page("search")
    assert (watched, repeated["_table"]) == ([True], None)
    app = open_page("search", search=search.id)
    assert repeated["_title"] is not None
    assert "Stopped on request." in words(app)
    (search.path / "result.json").unlink()
    app.run()
    assert "Stopped on request." not in words(app)


def test_an_empty_list_says_what_to_do(open_page: Open) -> None:
    app = open_page("search")
    assert "No search yet" in html(app)
    assert not next(one for one in app.button if one.label == "New search").disabled


def test_the_list_shows_state_trials_and_best(open_page: Open, workspace: Workspace) -> None:
    found = made(workspace)
    shown = html(open_page("search"))
    assert f"/search?search={found.id}" in shown
    for part in ("batch-size", "finished", "8 / 8", "val/loss", "/?notebook=first-steps"):
        assert part in shown


def test_a_finished_search_of_which_trials_failed_is_not_green(open_page: Open, workspace: Workspace) -> None:
    with (workspace.root / "first-steps.md").open("a", encoding="utf-8") as file:
        file.write(SEARCH)
    found = made(workspace)
    told = '<span class="sb-chip sb-partly">finished, 3 of 8 failed</span>'
    green = '<span class="sb-chip sb-finished">finished</span>'
    for result, shown in ((SearchResult("finished", 2e9, failed=3), told), (SearchResult("finished", 2e9), green)):
        found.write(result)
        for shown_page in (open_page("search"), open_page("search", search=found.id), open_page("")):
            assert shown in html(shown_page)
            assert (told if shown == green else green) not in html(shown_page)


def test_a_search_s_own_page_turns_what_it_guessed(open_page: Open, workspace: Workspace) -> None:
    path = workspace.root / "first-steps.md"
    path.write_text(TEXT + SEARCH.replace("val/loss", "val_zeal"), encoding="utf-8")
    search = spec((BATCH, RATE), trials=4, objectives=(Objective("val_zeal", True),))
    found = folder(workspace, search, records(search, 4))
    app = open_page("search", search=found.id)
    assert "val_zeal: lower is better, guessed" in [one.value for one in app.caption]
    press(app, "Higher is better")
    assert "val_zeal: max}" in path.read_text(encoding="utf-8")
    (said,) = [one.value for one in open_page("search", search=found.id).caption if "guessed" in one.value]
    assert said == (
        "val_zeal: lower is better, guessed. If the opposite is true, set objective: {val_zeal: max} and search again."
    ), "the trials that have run are judged as before"


def test_a_search_by_a_metric_whose_name_tells_guesses_nothing(open_page: Open, workspace: Workspace) -> None:
    app = open_page("search", search=made(workspace).id)
    assert not [one for one in app.caption if "guessed" in one.value]
    assert not [one for one in app.button if one.label == "Higher is better"]


def test_a_new_search_asks_first_and_says_nothing_is_wrong(open_page: Open) -> None:
    app = setting_up(open_page, experiment=CELL)
    assert not app.error
    assert app.button(key="search-start").disabled
    for title in ("Search space", "Batch size is"):
        assert title in words(app)
    assert "Choose fields" in html(app)


def test_a_preset_fills_the_space_and_says_what_it_would_do(open_page: Open) -> None:
    app = preset(setting_up(open_page, experiment=CELL), "batch-size")
    text = cell_text(app)
    assert text.startswith(f"```yaml search={CELL}-batch-size")
    assert "preset: batch-size" in text
    assert "powers_of_two" in text
    shown = words(app)
    assert "Starts" in shown
    assert "The time is not known until the first run ends" in shown
    assert "Examples of points" in html(app)
    assert not app.button(key="search-start").disabled
    assert f"--cell {CELL}-batch-size" in codes(app)[1]


def test_a_field_is_added_changed_and_removed(open_page: Open) -> None:
    app = setting_up(open_page, experiment=CELL)
    chooser = box(app, "Add a field")
    chooser.select_index(next(i for i, one in enumerate(chooser.options) if one.startswith("model.features"))).run()
    assert "model.features: {int: [4, 64]}" in cell_text(app).replace('"', "")
    number(app, "To, model.features").set_value(32).run()
    assert "model.features: {int: [4, 32]}" in cell_text(app).replace('"', "")
    kind = box(app, "Kind of model.features")
    kind.select_index(kind.options.index("powers of two")).run()
    assert "model.features: {powers_of_two: [2, 128]}" in cell_text(app).replace('"', "")
    next(one for one in app.button if str(one.key).endswith("model.features.remove")).click().run()
    assert not [one for one in app.selectbox if one.label == "Kind of model.features"]


@pytest.mark.thorough
def test_a_mistake_is_named_with_its_remedy_and_nothing_typed_is_lost(open_page: Open) -> None:
    app = preset(setting_up(open_page, experiment=CELL), "batch-size")
    number(app, "From, learning_rate").set_value(5.0).run()
    assert any("space.learning_rate" in one.value for one in app.error)
    assert app.button(key="search-start").disabled
    assert number(setting_up(open_page, experiment=CELL), "From, learning_rate").value == 5.0
    press(app, "Next: sampler and pruner")
    number(app, "Trials").set_value(7).run()
    press(app, "Back")
    assert number(app, "From, learning_rate").value == 5.0
    assert "trials: 7" in cell_text(app)
    again = setting_up(open_page, experiment=CELL)
    assert number(again, "From, learning_rate").value == 5.0
    press(again, "Start over")
    assert not has_number(again, "From, learning_rate")


def test_weak_scaling_changes_the_examples(open_page: Open) -> None:
    app = preset(setting_up(open_page, experiment=CELL), "batch-size")
    strong = html(app)
    app.radio[0].set_value("weak").run()
    assert "scaling: weak" in cell_text(app)
    assert html(app) != strong


@pytest.mark.thorough
def test_the_second_step_says_how(open_page: Open) -> None:
    app = press(preset(setting_up(open_page, experiment=CELL), "batch-size"), "Next: sampler and pruner")
    sampler = box(app, "Sampler")
    sampler.select_index(sampler.options.index("Random")).run()
    number(app, "Trials").set_value(6).run()
    number(app, "Seeds per trial").set_value(2).run()
    app.toggle[0].set_value(True).run()
    assert "Starts 12 runs" in words(app)
    for part in ("sampler: random", "trials: 6", "seeds: 2", "exclusive: true"):
        assert part in cell_text(app)
    against = box(app, "Second objective")
    against.select_index(against.options.index("seconds")).run()
    assert "seconds]" in cell_text(app)


def test_save_writes_the_cell_below_its_experiment(open_page: Open, workspace: Workspace) -> None:
    app = preset(setting_up(open_page, experiment=CELL), "batch-size")
    next(one for one in app.text_input if one.label == "Name").set_value("mine").run()
    app.button(key="search-save").click().run()
    assert not app.exception
    notebook = store.read(workspace.root / "first-steps.md").notebook
    assert notebook.text.startswith(TEXT.rstrip())
    found = notebook.search("mine")
    assert found is not None
    assert found.experiment == CELL
    assert list(workspace.cache.glob("search-draft-*")) == []


@pytest.mark.thorough
def test_a_cell_is_edited_in_place_with_its_comments(open_page: Open, workspace: Workspace) -> None:
    (workspace.root / "first-steps.md").write_text(TEXT + SEARCH, encoding="utf-8")
    app = setting_up(open_page, cell="batch-size")
    assert box(app, "From, batch_size").value == 16
    to = box(app, "To, batch_size")
    to.select_index(to.options.index("256")).run()
    app.button(key="search-save").click().run()
    text = (workspace.root / "first-steps.md").read_text(encoding="utf-8")
    assert "batch_size: {powers_of_two: [16, 256]}   # a comment of the person" in text
    assert text.count("```yaml search=") == 1


def test_a_cell_of_the_notebook_shows_its_search(open_page: Open, workspace: Workspace) -> None:
    (workspace.root / "first-steps.md").write_text(TEXT + SEARCH, encoding="utf-8")
    app = open_page("")
    shown = html(app)
    assert "batch size 16 … 1,024 × learning rate 0.001 … 1" in shown
    assert "strong scaling: global batch size" in shown
    assert "not run yet" in shown
    made(workspace)
    app = open_page("")
    shown = html(app)
    assert "stale: the search has changed" in shown
    assert "best val/loss" in shown
    assert not app.button(key="run-batch-size").disabled
    app.button(key="open-batch-size").click().run()
    assert "search" in app.query_params


def test_a_mistake_in_a_search_cell_blocks_run(open_page: Open, workspace: Workspace) -> None:
    (workspace.root / "first-steps.md").write_text(TEXT + SEARCH.replace("1024", "10"), encoding="utf-8")
    app = open_page("")
    assert any("space.batch_size" in one.value for one in app.error)
    assert app.button(key="run-batch-size").disabled


def test_one_search_has_its_head_and_buttons(open_page: Open, workspace: Workspace) -> None:
    found = made(workspace, trials=20)
    app = open_page("search", search=found.id)
    shown = html(app)
    assert "batch size 16 … 1,024" in shown
    assert "strong scaling" in shown
    labels = [one.label for one in app.button]
    assert "Stop" not in labels
    assert "Resume" not in labels
    assert "No such search" in words(open_page("search", search="none"))


@pytest.mark.thorough
def test_trials_are_added_and_a_point_is_tried_next(open_page: Open, workspace: Workspace) -> None:
    found = made(workspace, trials=20)
    app = open_page("search", search=found.id)
    number(app, "More trials").set_value("1,5").run()
    assert app.button(key="add-trials").disabled
    number(app, "More trials").set_value(5).run()
    press(app, "Add")
    assert found.body()["trials"] == 25
    assert found.result() is None  # it goes on
    app = open_page("search", search=found.id)
    size = box(app, "batch_size")
    size.select_index(size.options.index("32")).run()
    number(app, "learning_rate").set_value(50).run()
    assert app.button(key="add-point").disabled
    number(app, "learning_rate").set_value(0.5).run()
    press(app, "Try next")
    assert [point for _, point in search_requests.waiting_points(found)] == [{"batch_size": 32, "learning_rate": 0.5}]


def test_a_point_that_was_tried_is_named_and_not_tried_again(open_page: Open, workspace: Workspace) -> None:
    search = spec((BATCH,), trials=6)
    found = folder(workspace, search, records(search, 6))
    app = open_page("search", search=found.id)
    press(app, "Try next")  # begins with the best one
    assert search_requests.waiting_points(found) == []
    assert any("has already tried this point" in one.value for one in app.toast)


def test_a_stopped_search_says_how_it_goes_on(open_page: Open, workspace: Workspace) -> None:
    found = made(workspace)
    found.write(SearchResult("stopped", 2e9, "Stopped on request"))
    app = open_page("search", search=found.id)
    assert [one.value for one in app.info] == ["Stopped on request. Resume continues where it stopped."]


def test_a_failed_search_says_why_and_is_resumed(open_page: Open, workspace: Workspace) -> None:
    found = made(workspace)
    found.write(SearchResult("failed", 2e9, "10 trials have failed", "Look at the log of one of them."))
    app = open_page("search", search=found.id)
    assert any("10 trials have failed. Look at the log" in one.value for one in app.error)
    press(app, "Resume")
    assert found.result() is None


def test_a_search_that_nobody_drives_says_resume(open_page: Open, workspace: Workspace) -> None:
    found = made(workspace)
    (found.path / "result.json").unlink()
    gone = ProcessId.of()
    found.write(DriverProcess(replace(gone, start=gone.start - 100_000), 2e9))
    app = open_page("search", search=found.id)
    assert any("The search's process has ended. Press Resume" in one.value for one in app.warning)
    assert "interrupted" in html(app)


def test_the_best_configuration_is_written_into_the_notebook(open_page: Open, workspace: Workspace) -> None:
    (workspace.root / "first-steps.md").write_text(TEXT + SEARCH, encoding="utf-8")
    found = made(workspace, trials=20)
    app = open_page("search", search=found.id)
    app.button(key="best-use").click().run()
    assert not app.exception
    notebook = store.read(workspace.root / "first-steps.md").notebook
    best = notebook.experiment("batch-size-best")
    assert best is not None
    assert best.repeats == 2  # as the experiment that was searched over
    assert [getattr(one, "name", "") for one in notebook.cells][-2:] == ["batch-size", "batch-size-best"]


def test_a_search_that_was_started_from_a_file_fills_the_form(open_page: Open, workspace: Workspace) -> None:
    found = made(workspace, trials=20)
    copy = SearchFolder(workspace.studies / "abc")
    shutil.copytree(found.path, copy.path)
    copy.write(replace(found.request(), notebook=None, cell=None))
    app = open_page("search", search="abc")
    app.button(key="best-use").click().run()
    assert not app.exception
    assert next(one for one in app.text_input if one.label == "Name").value == "batch-size-best"
    assert len(store.read(workspace.root / "first-steps.md").notebook.experiments()) == 1


def test_an_experiment_is_searched_over_from_its_card(open_page: Open) -> None:
    app = open_page("")
    app.button(key=f"search-{CELL}").click().run()
    assert not app.exception
    assert box(app, "Experiment").value == CELL


@pytest.mark.thorough
def test_what_the_model_logs_is_found_out_before_its_first_run(
    open_page: Open, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = [LoggedMetrics(problem="RuntimeError: no data"), LoggedMetrics(["val_zeal", "val/loss"], ["train_loss"])]

    def find_out(experiment: Experiment) -> None:
        place = kept_at("logged", experiment)
        assert place is not None
        save(place, told.pop(0))

    monkeypatch.setattr(logged_metrics, "find_out", find_out)
    app = preset(setting_up(open_page, experiment=CELL), "batch-size")
    press(app, "Next: sampler and pruner")
    assert "val_zeal" not in box(app, "Objective").options
    press(app, LABEL)
    while resources.looks_at_metrics():
        time.sleep(0.01)
    app.run()
    assert [one.value for one in app.warning] == [
        f"Could not find out which metrics {CELL} logs. RuntimeError: no data."
    ], "and the button is there to try again"
    press(app, LABEL)
    while resources.looks_at_metrics():
        time.sleep(0.01)
    app.run()
    assert "val_zeal" in box(app, "Objective").options
    assert LABEL not in [one.label for one in app.button]
