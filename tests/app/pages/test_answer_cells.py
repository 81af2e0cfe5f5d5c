"""The cell of an answer: what it shows, what works on it, and its buttons."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from scalebook.app import resources
from scalebook.training.asking.answer_rows import Findings
from scalebook.training.asking.ask_folder import AskFailure, AskFolder, AskProgress
from scalebook.training.base.errors import Problem
from scalebook.training.base.workspace import Workspace
from scalebook.training.notebook import store
from tests.app import answered
from tests.app.answered import ANSWER, CELLS, HOW, QUESTION
from tests.app.pages.conftest import Open, html, words
from tests.app.pages.test_notebook_page import press

pytestmark = pytest.mark.long
FRESH = "Not answered yet: 0 of at least 9 runs with fresh seeds have finished."


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """In place of a process for each question that is started, its name."""
    names: list[str] = []
    monkeypatch.setattr(AskFolder, "start", lambda folder, notebook: names.append(f"{notebook.name} {folder.answer}"))
    return names


@pytest.fixture
def lab(workspace: Workspace) -> Path:
    """The notebook before any of its runs."""
    path = workspace.root / "lab.md"
    path.write_text(answered.written(), encoding="utf-8")
    return path


@pytest.fixture
def folder(workspace: Workspace) -> AskFolder:
    return AskFolder.of(workspace, "lab.md", "lab")


@pytest.fixture
def working(folder: AskFolder) -> Iterator[AskFolder]:
    """This process works on the question."""
    with folder.alone():
        yield folder


def cells(path: Path) -> list[str]:
    return [getattr(cell, "name", "note") for cell in store.read(path).notebook.cells]


def labels(app: AppTest) -> list[str]:
    return [one.label for one in app.button]


def test_an_answer_is_one_sentence_and_its_cells_are_folded(open_page: Open, workspace: Workspace) -> None:
    answered.answered(workspace)
    app = open_page("", notebook="lab")
    assert f'<div class="sb-question">{QUESTION}</div><div class="sb-headline">Yes: DDP × 2 reaches' in html(app)
    assert "own · metric val/bits_per_dim (lower is better) · target 2.5 · budget 15 min" in html(app)
    assert '<span class="sb-chip sb-supported">answered</span>' in html(app)
    assert "<li>DDP × 2 reaches val/bits_per_dim 2.5 in 0.21x (0.20 to 0.21) the time of one process" in html(app)
    assert "Continue" not in labels(app)
    assert not [one for one in app.button if one.key == "run-lab-one"]
    press(app, f"How the question was answered: {HOW}")
    assert [one for one in app.button if one.key == "run-lab-one"], "unfolded"
    press(app, f"How the question was answered: {HOW}")
    assert not [one for one in app.button if one.key == "run-lab-one"]
    assert not app.exception


def test_a_cell_that_an_address_names_is_not_folded(open_page: Open, lab: Path) -> None:
    assert "run-lab-one" in [one.key for one in open_page("", notebook=lab.stem, cell="lab-one").button]
    assert "run-lab-one" not in [one.key for one in open_page("", notebook=lab.stem).button]


def test_while_it_works_it_says_what_is_done_and_what_is_left_of_its_budget(
    open_page: Open, lab: Path, working: AskFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[str] = []
    monkeypatch.setattr(AskFolder, "stop", lambda one: stopped.append(one.answer))
    plan, left_out = "one process, DDP × 2: about 8 min", ["Not compared: async × 2."]
    working.write(AskProgress(0.0, 300.0, "trying learning rates: 3 of 14 runs", 120.0, left_out, plan))
    app = open_page("", notebook=lab.stem)
    (bar,) = [one for one in app.get("progress") if "trying" in one.proto.text]
    assert bar.proto.text.startswith("trying learning rates: 3 of 14 runs · ")
    assert " of 15 min" in bar.proto.text
    for said in ("Plan: one process, DDP × 2: about 8 min.", "Not compared: async × 2.", FRESH, "sb-running"):
        assert said in html(app)
    press(app, "Stop")
    press(app, "Stop all")
    assert stopped == ["lab", "lab"]
    assert app.button(key="edit-lab").disabled


def test_a_stopped_question_goes_on_and_one_that_failed_says_what_to_do(
    open_page: Open, lab: Path, folder: AskFolder, started: list[str]
) -> None:
    folder.path.mkdir(parents=True)
    folder.write(AskProgress(0.0, 300.0, "trying learning rates: 3 of 14 runs"))
    folder.write(AskFailure("metric", "is not logged", "Write one that it logs."))
    app = open_page("", notebook=lab.stem)
    assert [one.value for one in app.error] == ["**Metric is not logged.** Write one that it logs."]
    press(app, "Continue")
    assert started == ["lab.md lab"]
    assert ANSWER in lab.read_text(encoding="utf-8")


def test_where_the_budget_is_spent_it_goes_on_with_a_larger_one(
    open_page: Open, lab: Path, folder: AskFolder, started: list[str]
) -> None:
    folder.path.mkdir(parents=True)
    folder.write(AskProgress(0.0, 901.0, ""))
    app = open_page("", notebook=lab.stem)
    assert "budget spent</span>" in html(app)
    press(app, "Continue for 8 min more")
    assert store.read(lab).notebook.answers()[0].budget_s == 23 * 60
    assert started == ["lab.md lab"]


def test_seeds_that_would_resolve_it_are_added_with_time_for_them(
    open_page: Open, workspace: Workspace, started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten minutes more than there are, by a quarter more, and a minute."""
    path = answered.answered(workspace, {"lab-ddp-2": 2})
    real = resources.answer

    def unresolved(*arguments: object) -> Findings | Problem:
        findings = real(*arguments)  # type: ignore[arg-type]
        assert isinstance(findings, Findings)
        return replace(findings, more_seeds=8, more_s=1200.0)

    monkeypatch.setattr(resources, "answer", unresolved)
    app = press(open_page("", notebook="lab"), "Add 5 seeds (about 20 min)")
    assert not app.exception
    nb = store.read(path).notebook
    assert [nb.experiment(name).repeats for name in ("own", "lab-pilot", "lab-one", "lab-ddp-2")] == [3, 3, 8, 8]  # type: ignore[union-attr]
    assert nb.answers()[0].budget_s == 60 * (20 * 1.25 + 1)
    assert started == ["lab.md lab"]


@pytest.mark.parametrize("with_cells", [True, False])
def test_its_cells_go_with_it_only_where_that_is_wanted(
    open_page: Open, lab: Path, folder: AskFolder, with_cells: bool
) -> None:
    folder.path.mkdir(parents=True)
    app = open_page("", notebook=lab.stem)
    app.menu_button(key="more-lab").click("Delete").run()
    (choice,) = [one for one in app.checkbox if one.key == "delete-how"]
    assert choice.label == f"Also delete the cells that answer the question: {HOW}"
    if not with_cells:
        choice.uncheck().run()
    press(app, "Delete")
    assert not app.exception
    assert cells(lab) == ["note", "own", *(() if with_cells else CELLS)]
    assert not folder.path.exists()
    press(app, "Undo")
    assert lab.read_text(encoding="utf-8") == answered.written()


def test_a_question_that_nobody_knows_is_refused_in_its_cell(open_page: Open, lab: Path) -> None:
    lab.write_text(lab.read_text(encoding="utf-8").replace("more-workers", "more-worker"), encoding="utf-8")
    app = open_page("", notebook=lab.stem)
    assert "question: 'more-worker' is unknown. Did you mean `more-workers`?" in words(app)
    assert "Continue" not in labels(app)


def test_a_renamed_notebook_takes_the_time_that_was_spent_along(open_page: Open, lab: Path, folder: AskFolder) -> None:
    folder.path.mkdir(parents=True)
    folder.write(AskProgress(0.0, 300.0, ""))
    app = open_page("", notebook=lab.stem)
    with folder.alone():
        app.menu_button(key="notebook-more").click("Rename").run()
        app.text_input(key="rename-file").set_value("second").run()
        app.button(key="rename-notebook").click().run()
        assert app.toast[0].value.startswith("file name: cannot change while lab.md has active runs")
    app.button(key="rename-notebook").click().run()
    assert not app.exception
    moved = AskFolder.of(folder.workspace, "second.md", "lab").progress()
    assert moved is not None
    assert moved.spent_s == 300.0
    assert not folder.path.exists()
