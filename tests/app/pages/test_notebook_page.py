import re

import pytest
from streamlit.testing.v1 import AppTest

from scalebook.app.navigation import NOTEBOOK, RUNS
from scalebook.app.notebook import page as notebook_page
from scalebook.training.base.workspace import SETTINGS, Workspace
from scalebook.training.experiments.catalogue import describe
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.identity import config_hash
from scalebook.training.jobs import job_requests
from scalebook.training.notebook import store
from scalebook.training.notebook.export.verification import verify
from scalebook.training.notebook.parse import parse
from scalebook.training.tracking import names
from scalebook.training.tracking.run_reader import RunReader, RunRecord
from scalebook.training.tracking.run_start import open_store
from tests.app.pages.compose_form import pick, strategy_args
from tests.app.pages.conftest import TEXT, Open, html, words
from tests.app.recorded import record

pytestmark = pytest.mark.long
DECISIONS = {"Keep the file", "Keep both texts", "Replace the file with mine"}


def test_a_notebook_without_experiments_says_what_to_do(open_page: Open, workspace: Workspace) -> None:
    (workspace.root / "first-steps.md").write_text("# Only words\n", encoding="utf-8")
    assert "No experiment yet" in html(open_page())


def test_cells_stand_in_order_with_their_summary(open_page: Open) -> None:
    app = open_page()
    assert "Does staleness hurt?" in app.markdown[0].value
    shown = html(app)
    assert "pixelcnn-async-2" in shown
    assert "not run yet" in shown
    for part in ("PixelCNN on Digits", "parameter server × 2, async", "batch 32 per worker, 64 global", "2 seeds"):
        assert part in shown


def test_results_stand_by_seed_and_a_failure_names_cause_and_remedy(open_page: Open, workspace: Workspace) -> None:
    first = record(workspace, seed=1)
    record(workspace, seed=2, state="failed")
    app = open_page()
    shown = html(app)
    assert f"/runs?run={first.id}" in shown
    assert "2.047" in shown
    assert "best val/bits_per_dim" in shown
    assert "stale: the config has changed" in shown  # the recorded hash is not the cell's
    assert app.button(key="run-pixelcnn-async-2").label == "Run"


def test_a_card_with_many_seeds_has_one_bar_for_all_that_wait_and_a_short_table(
    open_page: Open, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = TEXT.replace("repeats: 2 ", "repeats: 60 ")
    (workspace.root / "first-steps.md").write_text(text, encoding="utf-8")
    same = config_hash(Experiment.read(parse(text).experiments()[0].config, describe(workspace)))
    ended = ["failed" if seed in (20, 21) else "finished" for seed in range(1, 22)]
    for seed in range(1, 61):
        state = ended[seed - 1] if seed <= len(ended) else "running" if seed < 24 else "waiting"
        record(workspace, seed=seed, state=state, points=1, config_hash=same)
    reads: list[str | None] = []
    read = RunReader.listed

    def counted(self: RunReader, limit: int, *, notebook: str | None = None, trials: bool = True) -> list[RunRecord]:
        reads.append(notebook)
        return read(self, limit, notebook=notebook, trials=trials)

    monkeypatch.setattr(RunReader, "listed", counted)
    monkeypatch.setattr(RunReader, "runs", None)  # not one query of MLflow's, which takes 10 times as long
    app = open_page()
    assert reads == ["first-steps.md"]
    bars = [bar.proto.text for bar in app.get("progress")]
    assert [bar.partition(":")[0] for bar in bars] == [
        "seed 22",
        "seed 23",
        "21 of 60 runs have ended, 37 are waiting. Next is seed 24",
    ]
    assert "no supervisor is running" in bars[-1]
    assert [error.value.partition(" SIGKILL")[0] for error in app.error] == [
        "**Seeds 20, 21: worker lost.** Worker 1 died: pid 4711,"
    ]
    shown = html(app)
    rows = [int(seed) for seed in re.findall(r">seed (\d+)</a>", shown)]
    assert rows == [20, 21, 22, 23, *range(1, 9)]
    assert "mean of 19" in shown
    assert [fold.label for fold in app.expander] == ["All 23 runs"]


def test_cards_far_down_a_long_notebook_are_drawn_when_the_browser_comes_near(
    open_page: Open, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted: list[str] = []

    def submit(*_: object, cell: str, **keys: object) -> list[object]:
        submitted.append(cell)
        return []

    monkeypatch.setattr(job_requests, "submit", submit)
    name, fence = "pixelcnn-async-2", TEXT[TEXT.index("```yaml") :]
    cells = [f"Note {i}.\n\n{fence.replace(name, f'{name}-{i}')}\n" for i in range(12)]
    comparison = f"```yaml comparison=all\nruns: [{name}-0, {name}-1]\n```\n"
    (workspace.root / "first-steps.md").write_text("\n".join([*cells, comparison]), encoding="utf-8")
    record(workspace, cell=f"{name}-9")

    def drawn(app: AppTest) -> list[int]:
        return [i for i in range(12) if any(button.key == f"edit-{name}-{i}" for button in app.button)]

    def shows(app: AppTest) -> list[str]:
        return [str(button.key) for button in app.button if str(button.key).startswith("show-")]

    app = open_page()
    assert drawn(app) == [0, 1, 2, 3]
    assert shows(app) == [*(f"show-{name}-{i}" for i in range(4, 12)), "show-all"]
    assert [f"Note {i}." in words(app) for i in range(12)] == [True] * 12
    assert all(f"{name}-{i}" in html(app) for i in range(12))
    assert html(app).count("stale: the config has changed") == 0
    assert "sb-finished" in html(app)  # of the card that is not drawn, as of one that is
    app.button(key=f"show-{name}-9").click().run()
    assert drawn(app) == [0, 1, 2, 3, 9]
    assert "stale: the config has changed" in html(app)
    app.run()
    assert drawn(app) == [0, 1, 2, 3, 9]
    app.button(key="run-stale").click().run()  # what concerns the notebook concerns all of it
    assert submitted == [f"{name}-{i}" for i in range(12)]


def test_seeds_that_share_their_random_numbers_are_marked(open_page: Open, workspace: Workspace) -> None:
    cell = store.read(workspace.root / "first-steps.md").notebook.experiments()[0]
    for seed in (1, 2):
        job = record(workspace, seed=seed, config_hash=config_hash(Experiment.read(cell.config, describe(workspace))))
        assert not open_page().warning
        open_store(workspace).set_tag(job.id, names.TAG_RANDOM_TRAINED, "ab12")
    assert "Seeds 1, 2 use the same random numbers" in open_page().warning[0].value


def test_a_mistake_in_a_cell_is_shown_and_blocks_run(open_page: Open, workspace: Workspace) -> None:
    (workspace.root / "first-steps.md").write_text(TEXT.replace("batch_size: 32", "batch_size: many"), encoding="utf-8")
    app = open_page()
    assert "data.init_args.batch_size" in app.error[0].value
    assert app.button(key="run-pixelcnn-async-2").disabled


@pytest.mark.thorough
@pytest.mark.usefixtures("forked_descriptions")
def test_data_that_do_not_go_to_other_machines_are_named_before_run(open_page: Open, workspace: Workspace) -> None:
    (workspace.root / "pictures").mkdir()
    (workspace.root / SETTINGS).write_text('[cluster]\naddress = "auto"\n', encoding="utf-8")
    workspace.__dict__.pop("settings", None)
    changed = TEXT.replace("batch_size: 32", "batch_size: 32, folder: pictures")
    (workspace.root / "first-steps.md").write_text(changed, encoding="utf-8")
    app = open_page()
    assert "data.init_args.folder: is pictures (a folder), which is not copied to other nodes" in app.warning[0].value


def test_far_more_workers_than_cores_are_confirmed_first(open_page: Open, workspace: Workspace) -> None:
    (workspace.root / "first-steps.md").write_text(TEXT.replace("devices: 2", "devices: 1000"), encoding="utf-8")
    app = open_page()
    assert app.button(key="run-pixelcnn-async-2").disabled
    assert any(one.value.startswith("1,000 workers on ") for one in app.warning)
    app.checkbox[0].check().run()
    assert not app.button(key="run-pixelcnn-async-2").disabled


def test_a_broken_cell_is_mended_in_place(open_page: Open, workspace: Workspace) -> None:
    path = workspace.root / "first-steps.md"
    path.write_text(TEXT.replace("repeats: 2 ", "repeats: [2 "), encoding="utf-8")
    app = open_page()
    assert "cannot be read" in app.error[0].value
    app.text_area[0].set_value(str(app.text_area[0].value).replace("[2", "2")).run()
    next(one for one in app.button if one.label == "Save").click().run()
    assert path.read_text(encoding="utf-8") == TEXT


def test_a_note_is_edited_and_nothing_else_changes(open_page: Open, workspace: Workspace) -> None:
    app = open_page()
    next(one for one in app.button if one.label == "Edit").click().run()
    app.text_area[0].set_value("# Answer\n\nA little.\n\n").run()
    next(one for one in app.button if one.label == "Save").click().run()
    text = (workspace.root / "first-steps.md").read_text(encoding="utf-8")
    assert text == TEXT.replace("# Question\n\nDoes staleness hurt?\n\n", "# Answer\n\nA little.\n\n")


def test_a_note_is_added_only_when_it_is_saved(open_page: Open, workspace: Workspace) -> None:
    path = workspace.root / "first-steps.md"
    app = open_page()
    next(one for one in app.button if one.label == "Add a note").click().run()
    assert path.read_text(encoding="utf-8") == TEXT
    app.text_area[0].set_value("Conclusion: *no*.").run()
    next(one for one in app.button if one.label == "Save").click().run()
    assert path.read_text(encoding="utf-8").endswith("Conclusion: *no*.\n\n")
    assert len(store.read(path).notebook.cells) == 3


def press(app: AppTest, label: str) -> AppTest:
    return next(one for one in app.button if one.label == label).click().run()


def test_two_notebooks_with_one_title_can_both_be_opened(open_page: Open, workspace: Workspace) -> None:
    (workspace.root / "copy.md").write_text("---\ntitle: First steps\n---\nThe copy.\n", encoding="utf-8")
    app = open_page()
    assert app.selectbox[0].options == ["First steps (copy.md)", "First steps (first-steps.md)"]
    app.selectbox[0].select_index(0).run()
    assert "The copy." in words(app)
    app.selectbox[0].select_index(1).run()
    assert "Does staleness hurt?" in words(app)


def test_a_new_notebook_begins_with_an_open_editor_and_no_words_of_ours(open_page: Open, workspace: Workspace) -> None:
    app = press(open_page(), "New notebook")
    next(one for one in app.text_input if one.label == "Title").set_value("x" * 200).run()
    press(app, "Create")
    assert not app.exception
    assert app.query_params["notebook"] == "x" * 200
    assert app.text_area[0].placeholder.startswith("What is the question")
    assert (workspace.root / f"{'x' * 200}.md").read_text(encoding="utf-8") == f"---\ntitle: {'x' * 200}\n---\n"
    app.text_area[0].set_value("Why?").run()
    press(app, "Save")
    assert (workspace.root / f"{'x' * 200}.md").read_text(encoding="utf-8").endswith("---\n\nWhy?\n\n")


def test_two_clicks_on_run_submit_once(open_page: Open, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_requests, "ensure", lambda workspace: None)  # nobody begins to run it
    app, other = open_page(), open_page()
    app.button(key="run-pixelcnn-async-2").click().run()
    assert len(list(workspace.jobs.iterdir())) == 2  # one for each seed
    other.button(key="run-pixelcnn-async-2").click().run()  # its page shows it as not run yet
    assert len(list(workspace.jobs.iterdir())) == 2
    assert other.button(key="stop-pixelcnn-async-2").label == "Stop"


def test_an_edit_made_meanwhile_is_not_overwritten_and_both_are_offered(open_page: Open, workspace: Workspace) -> None:
    path = workspace.root / "first-steps.md"
    app = open_page()
    next(one for one in app.button if one.label == "Edit").click().run()
    theirs = TEXT.replace("Does staleness hurt?", "Somebody else was here.")
    path.write_text(theirs, encoding="utf-8")
    app.text_area[0].set_value("Mine.\n\n").run()
    next(one for one in app.button if one.label == "Save").click().run()
    assert path.read_text(encoding="utf-8") == theirs
    labels = [one.label for one in app.button]
    assert set(labels) >= DECISIONS
    buttons = [one.proto for one in app.button if one.label in DECISIONS]
    assert [one.label for one in buttons if one.type == "primary"] == ["Keep both texts"], "which undoes nothing"
    assert any("-Somebody else was here." in one.value and "+Mine." in one.value for one in app.code)
    reloaded = open_page()
    assert "Continue" in [one.label for one in reloaded.button], "a draft, until it is decided"
    next(one for one in app.button if one.label == "Keep both texts").click().run()
    both = theirs.replace("Somebody else was here.", "Somebody else was here.\n\n---\n\nMine.")
    assert path.read_text(encoding="utf-8").replace("# Question\n\n", "") == both.replace("# Question\n\n", "")
    assert sorted(workspace.root.glob("*.md")) == [path]
    assert list(workspace.cache.glob("*draft-*")) == []


def test_an_edit_of_another_cell_made_meanwhile_is_merged(open_page: Open, workspace: Workspace) -> None:
    path = workspace.root / "first-steps.md"
    app = open_page()
    next(one for one in app.button if one.label == "Edit").click().run()
    theirs = TEXT.replace("max_epochs: 5", "max_epochs: 7")
    path.write_text(theirs, encoding="utf-8")
    app.text_area[0].set_value("# Question\n\nMine.\n\n").run()
    next(one for one in app.button if one.label == "Save").click().run()
    assert path.read_text(encoding="utf-8") == theirs.replace("Does staleness hurt?", "Mine.")
    assert DECISIONS.isdisjoint(one.label for one in app.button)
    assert "Mine." in words(app)
    press(app, "Undo")
    assert path.read_text(encoding="utf-8") == theirs, "one's own edit is undone, not the other"


@pytest.mark.usefixtures("looked_at")
def test_duplicate_opens_the_form_and_the_name_follows_what_is_chosen_there(
    open_page: Open, workspace: Workspace
) -> None:
    app = open_page()
    app.button(key="duplicate-pixelcnn-async-2").click().run()
    assert strategy_args(app)["rule"] == "async"
    name = next(one for one in app.text_input if one.label == "Name")
    assert (name.value, name.placeholder) == ("", "pixelcnn-asyncps-x2")
    pick(app, "Strategy", "DDP")
    assert next(one for one in app.text_input if one.label == "Name").placeholder == "pixelcnn-ddp-x2"
    assert [one.name for one in store.read(workspace.root / "first-steps.md").notebook.experiments()] == [
        "pixelcnn-async-2"
    ]


def test_another_notebook_is_opened_by_its_address(open_page: Open, workspace: Workspace) -> None:
    (workspace.root / "second.md").write_text("# The second\n", encoding="utf-8")
    assert "The second" in words(open_page("", notebook="second"))
    assert "No notebook called third" in html(open_page("", notebook="third"))


@pytest.mark.thorough
def test_a_notebook_that_cannot_be_read_says_why_on_its_page_and_leaves_the_others_alone(
    open_page: Open, workspace: Workspace
) -> None:
    (workspace.root / "a-deep.md").write_text("---\ntitle: " + "[" * 5000 + "\n---\n# Shown\n", encoding="utf-8")
    (workspace.root / "b-latin.md").write_bytes("# Größe\n".encode("latin-1"))
    app = open_page()
    assert not app.error
    assert app.selectbox[0].options == ["⚠ Shown", "⚠ b-latin", "First steps"]
    app = open_page("", notebook="a-deep")
    assert "nested deeper than 32 levels" in app.error[0].value
    assert "# Shown" in app.markdown[0].value
    app = open_page("", notebook="b-latin")
    assert [one.value for one in app.error] == [
        f"{workspace.root}/b-latin.md: is not UTF-8 at byte 4. Save it as UTF-8."
    ]
    for path in ("compose", "runs", "search"):
        open_page(path)


def test_export_offers_the_notebook_as_it_is_by_then_to_a_reader_and_to_a_checker(
    open_page: Open, workspace: Workspace
) -> None:
    record(workspace, seed=1)
    app = open_page()
    for key, label in (("notebook-export-html", "HTML"), ("notebook-export-archive", "Archive")):
        button = app.download_button(key=key)
        assert (button.label, button.proto.deferred_file_id != "") == (label, True)
    captions = " ".join(caption.value for caption in app.caption)
    assert "One page for readers" in captions
    assert "For people who want to check" in captions
    path = workspace.root / "first-steps.md"
    exports = notebook_page.maker(store.read(path))
    assert exports is not None
    path.write_text(TEXT.replace("Does staleness hurt?", "Since then *edited*."), encoding="utf-8")
    text = exports.html()
    assert "<h1>Question</h1>" in text
    assert "Since then <em>edited</em>." in text
    assert '<td class="num">2.047</td>' in text
    (archived := workspace.root / "a.zip").write_bytes(exports.archive())
    assert verify(archived).differences == []


def test_a_notebook_that_cannot_be_read_is_not_exported(open_page: Open, workspace: Workspace) -> None:
    (workspace.root / "first-steps.md").write_bytes(b"\xff\xfe")
    assert not open_page().download_button


def second(text: str) -> str:
    """The notebook with another experiment at its end."""
    cell = text[text.index("```yaml") :]
    return text + "\n" + cell.replace("pixelcnn-async-2", "other").replace("repeats: 2", "repeats: 1")


@pytest.mark.thorough
def test_all_are_run_or_what_is_stale_and_all_are_stopped(
    open_page: Open, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_requests, "ensure", lambda workspace: None)  # nobody begins to run it
    path = workspace.root / "first-steps.md"
    path.write_text(second(TEXT), encoding="utf-8")
    cell, description = store.read(path).notebook.experiments()[0], describe(workspace)
    done = record(workspace, seed=1, config_hash=config_hash(Experiment.read(cell.config, description)))
    record(workspace, seed=2)  # of an earlier config
    app = open_page()
    assert [app.button(key=key).disabled for key in ("run-all", "run-stale", "stop-all")] == [False, False, True]
    app.button(key="run-stale").click().run()
    made = [job.request() for job in job_requests.all_jobs(workspace) if job.state() == "waiting"]
    assert {(one.cell, one.seed) for one in made} == {("pixelcnn-async-2", 2), ("other", 1)}
    assert [app.button(key=key).disabled for key in ("run-all", "run-stale", "stop-all")] == [True, True, False]
    app.button(key="stop-all").click().run()
    assert {job.state() for job in job_requests.all_jobs(workspace) if job.id != done.id} == {"stopped", "finished"}
    app.button(key="run-all").click().run()
    waiting = [job.request() for job in job_requests.all_jobs(workspace) if job.state() == "waiting"]
    assert {(one.cell, one.seed) for one in waiting} == {("pixelcnn-async-2", 1), ("pixelcnn-async-2", 2), ("other", 1)}


def test_run_all_leaves_out_what_has_a_mistake_and_says_so(
    open_page: Open, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_requests, "ensure", lambda workspace: None)
    text = second(TEXT).replace("batch_size: 32", "batch_size: many", 1)
    (workspace.root / "first-steps.md").write_text(text, encoding="utf-8")
    app = open_page()
    app.button(key="run-all").click().run()
    assert [job.request().cell for job in job_requests.all_jobs(workspace)] == ["other"]
    assert app.toast[0].value.startswith("Submitted 1 run.  \npixelcnn-async-2 did not start: data.init_args.batch")


def test_the_menu_leads_back_to_the_notebook_that_was_open(open_page: Open, workspace: Workspace) -> None:
    (workspace.root / "second.md").write_text("---\ntitle: Second\n---\nText.\n", encoding="utf-8")
    app = open_page(notebook="second")
    app.switch_page(RUNS.script).run()
    app.switch_page(NOTEBOOK.script)
    app.query_params.clear()
    app.run()
    assert any(one.value == "Text." for one in app.markdown)
    (workspace.root / "second.md").unlink()
    app.switch_page(RUNS.script).run()
    app.switch_page(NOTEBOOK.script)
    app.query_params.clear()
    app.run()
    assert any("Does staleness hurt?" in one.value for one in app.markdown)


def test_a_card_says_what_its_cell_says_of_itself(open_page: Open, workspace: Workspace) -> None:
    path = workspace.root / "first-steps.md"
    said = "# Started from trial 7 of sizes, which reached val/loss 0.2\nrepeats: 2"
    path.write_text(path.read_text(encoding="utf-8").replace("repeats: 2", said), encoding="utf-8")
    assert '<div class="sb-remark">Started from trial 7 of sizes, which reached val/loss 0.2</div>' in html(open_page())


def test_the_theme_is_switched_by_a_button_on_every_page(open_page: Open) -> None:
    for path in ("", "runs"):
        shown = html(open_page(path))
        assert 'class="sb-theme" data-to="Dark" data-paths="/ /compose /runs /search /compare /plan /help"' in shown
        assert 'aria-label="Switch to the dark theme"' in shown
