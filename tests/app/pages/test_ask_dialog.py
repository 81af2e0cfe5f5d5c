"""The dialog that asks a question: what it offers, what it says will be done, and what it refuses."""

from pathlib import Path
from typing import Any

import pytest
from mlflow.entities import RunStatus
from streamlit.testing.v1 import AppTest

from scalebook.app.notebook import page as notebook_page
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments import catalogue
from scalebook.training.experiments.identity import config_hash
from scalebook.training.jobs import supervisor_handle
from scalebook.training.notebook import store
from scalebook.training.tracking import names
from scalebook.training.tracking.run_start import open_store
from tests.app.answered import QUESTION, experiment
from tests.app.pages.conftest import Open, html, words
from tests.app.pages.test_answer_cells import started  # noqa: F401 - a fixture
from tests.app.pages.test_notebook_page import press
from tests.app.recorded import record

pytestmark = pytest.mark.long
NOBODY_KNOWS = "A pilot run of at most 3 min shows how long training takes, and so how much fits into 15 min."


@pytest.fixture
def lab(workspace: Workspace) -> Path:
    """A notebook with two experiments in one process."""
    path = workspace.root / "lab.md"
    path.write_text(f"{experiment('own')}\nBetween.\n\n{experiment('other', seed_everything=5)}", encoding="utf-8")
    return path


def ask(app: AppTest, name: str = "own") -> AppTest:
    app.button(key=f"ask-{name}").click().run()
    assert not app.exception, app.exception[0].value
    return app


def select(app: AppTest, label: str) -> Any:
    return next(one for one in app.selectbox if one.label == label)


def box(app: AppTest, label: str) -> Any:
    return next(one for one in app.text_input if one.label == label)


def choose(app: AppTest, question: str) -> AppTest:
    app.radio[0].set_value(question).run()
    assert not app.exception, app.exception[0].value
    return app


def start(app: AppTest) -> Any:
    return app.button(key="ask-start")


def test_a_question_is_asked_by_two_clicks(open_page: Open, lab: Path, started: list[str]) -> None:  # noqa: F811
    app = ask(open_page("", notebook="lab"), "other")
    assert app.radio[0].options[0] == QUESTION
    assert len(app.radio[0].options) == 4
    assert select(app, "Experiment").value == "other"
    assert select(app, "Metric").value == "main metric (val/loss)"
    assert (box(app, "Target").value, box(app, "Target").placeholder) == ("", "chosen automatically")
    assert not [one for one in app.button_group if one.label == "Better"], "val/loss is no guess"
    assert "One process; DDP × " in html(app)
    assert NOBODY_KNOWS in html(app)
    start(app).click().run()
    assert not app.exception
    cell = "```yaml answer=other-more-workers\nquestion: more-workers\nexperiment: other\n```\n"
    assert lab.read_text(encoding="utf-8").endswith(f"{experiment('other', seed_everything=5)}\n{cell}")
    assert started == ["lab.md other-more-workers"]
    assert '<div class="sb-headline">Not started.</div>' in html(app)


def test_what_was_asked_before_goes_on(open_page: Open, lab: Path, started: list[str]) -> None:  # noqa: F811
    app = ask(open_page("", notebook="lab"))
    start(app).click().run()
    before = lab.read_text(encoding="utf-8")
    app = ask(open_page("", notebook="lab"))
    assert any(
        "own-more-workers already asks this question, so starting here continues own-more-workers." in one.value
        for one in app.caption
    )
    start(app).click().run()
    assert lab.read_text(encoding="utf-8") == before
    assert started == 2 * ["lab.md own-more-workers"]


def test_what_will_be_done_fits_into_the_budget_where_trainings_have_been_timed(
    open_page: Open, workspace: Workspace, lab: Path
) -> None:
    cell = store.read(lab).notebook.experiment("own")
    assert cell is not None
    now = config_hash(cell.experiment(catalogue.describe(workspace)))
    job = record(workspace, cell="own", notebook="lab.md", config_hash=now)
    run = open_store(workspace).get_run(job.id).info
    open_store(workspace)._tracking_client.store.update_run_info(
        run.run_id, RunStatus.FINISHED, run.start_time + 60_000, None
    )
    app = ask(open_page("", notebook="lab"))
    assert NOBODY_KNOWS not in html(app)
    box(app, "Budget").set_value("5h").run()
    assert (
        "Scalebook tries 7 learning rates for each side, then runs 5 fresh seeds of each side. This takes about "
        in html(app)
    )
    box(app, "Budget").set_value("1 min").run()
    assert any(
        one.value.startswith("**Budget** 60 s is too short, because a run takes 60 s, and an answer needs ")
        for one in app.error
    )
    assert start(app).disabled


def test_what_is_wrong_is_said_by_its_key(open_page: Open, lab: Path, started: list[str]) -> None:  # noqa: F811
    app = ask(open_page("", notebook="lab"))
    box(app, "Budget").set_value("soon").run()
    assert [one.value for one in app.error] == ["**Budget** is 'soon'. Set it to a time, such as 15m or 1h30m."]
    assert start(app).disabled
    box(app, "Budget").set_value("1h30m").run()
    box(app, "Target").set_value("low").run()
    assert [one.value for one in app.error] == [
        "**Target** is not a number. Enter a number, such as 0.3, or leave it empty."
    ]
    box(app, "Target").set_value("0.5").run()
    assert not app.error
    start(app).click().run()
    (cell,) = store.read(lab).notebook.answers()
    assert (cell.target, cell.budget_s) == (0.5, 5400)
    assert started == ["lab.md own-more-workers"]


def test_a_question_about_two_needs_another_one(open_page: Open, lab: Path, started: list[str]) -> None:  # noqa: F811
    app = choose(ask(open_page("", notebook="lab"), "other"), "Is A better than B, or is it seed noise?")
    assert select(app, "Compared with").value == "own"
    assert (
        "Own; other. First, Scalebook searches for the best learning rate for each side. Then each side is run with "
        "fresh seeds."
    ) in html(app)
    assert not [one for one in app.text_input if one.label == "Target"], "the best value decides"
    start(app).click().run()
    (cell,) = store.read(lab).notebook.answers()
    assert (cell.question, cell.experiment, cell.against) == ("a-or-b", "other", "own")
    lab.write_text(experiment("own"), encoding="utf-8")
    app = choose(ask(open_page("", notebook="lab")), "Is A better than B, or is it seed noise?")
    assert app.error[0].value.startswith("**Compared with** is missing, but this question compares two experiments.")
    assert start(app).disabled


def test_an_experiment_without_a_place_for_a_learning_rate_is_refused_by_its_key(open_page: Open, lab: Path) -> None:
    """Its optimizer has none, so nothing can be searched."""
    lab.write_text(experiment("own", optimizer={"class_path": "torch.optim.LBFGS"}), encoding="utf-8")
    app = choose(ask(open_page("", notebook="lab")), "Which batch size and learning rate should I use?")
    why = (
        "**Learning rate** cannot be set, because the optimizer has no argument for the learning rate. Use the full "
        "path of the field instead."
    )
    assert why in [one.value for one in app.error]
    assert start(app).disabled


def test_a_direction_is_asked_for_where_it_is_a_guess(
    open_page: Open,
    workspace: Workspace,
    lab: Path,
    started: list[str],  # noqa: F811
) -> None:
    job = record(workspace, cell="own", notebook="lab.md")
    for name in ("zeal", names.best("zeal")):
        open_store(workspace).log_metric(job.id, name, 1.0)
    app = ask(open_page("", notebook="lab"))
    select(app, "Metric").set_value("zeal").run()
    (better,) = [one for one in app.button_group if one.label == "Better"]
    assert better.value == "min"
    better.set_value("max").run()
    start(app).click().run()
    (cell,) = store.read(lab).notebook.answers()
    assert (cell.metric, cell.goal) == ("zeal", "max")


def test_before_the_first_experiment_its_form_comes_first(
    open_page: Open, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From an empty folder: the form, Save, and the question about what was saved."""
    monkeypatch.setattr(supervisor_handle, "ensure", lambda _: None)
    (workspace.root / "first-steps.md").unlink()
    app = press(open_page(), "Ask a question")
    assert not app.exception
    assert app.toast[0].value == notebook_page.FIRST
    press(app, "Save")
    assert not app.exception, app.exception[0].value
    (cell,) = store.read(workspace.root / "questions.md").notebook.experiments()
    assert select(app, "Experiment").value == cell.name
    assert app.radio[0].options[0] == QUESTION
    assert "Ask a question" not in words(open_page("", notebook="questions")), "once"
