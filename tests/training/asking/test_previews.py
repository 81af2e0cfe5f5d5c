"""What a question will do, before it starts."""

from dataclasses import replace
from typing import Any

import pytest

from scalebook.training.asking import previews
from scalebook.training.asking.previews import Trained, preview, sides_of, taken
from scalebook.training.asking.recipe import Machine
from scalebook.training.asking.sizes import STARTING_S, RunTime
from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files import yaml
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments.description import Description
from scalebook.training.jobs.executor import LocalHandle
from scalebook.training.jobs.job_folder import JobFolder, JobStart, Progress, Result
from scalebook.training.notebook.cells import AnswerCell, Notebook
from scalebook.training.notebook.parse import parse
from scalebook.training.tracking import names
from scalebook.training.tracking.run_reader import RunRecord

TWO_CORES = Machine(2)


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(previews, "machine", lambda: TWO_CORES)


def notebook(**changes: Any) -> Notebook:
    config = {
        "trainer": {"accelerator": "cpu", "max_epochs": 2},
        "model": {"class_path": "MLPClassifier"},
        "data": {"class_path": "Digits", "init_args": {"batch_size": 32}},
        "optimizer": {"class_path": "SGD", "init_args": {"lr": 0.1}},
    } | changes
    cells = [f"```yaml experiment={name}\n{yaml.dump({'config': config})}```\n" for name in ("small", "large")]
    return parse("\n".join(cells), "")


def took(seconds: float, name: str = "small") -> dict[str, Trained]:
    return {name: Trained(RunTime(2.0, seconds - 2.0), frozenset({"val/loss", "val/accuracy", "train/loss"}))}


def question(name: str, budget_s: float = 900.0, against: str | None = None) -> AnswerCell:
    return AnswerCell("", "", name, "small", against, budget_s=budget_s)


def test_the_time_of_a_training_says_how_much_fits_into_the_budget(description: Description) -> None:
    short, long = (preview(notebook(), question("more-workers", s), description, took(60.0)) for s in (600.0, 36_000.0))
    assert (
        "Scalebook tries 7 learning rates for each side, then runs 5 fresh seeds of each side. This takes about "
        in long.plan
    )
    assert long.left_out == []
    assert "3 learning rates for each" in short.plan
    assert short.left_out
    with pytest.raises(
        ConfigError,
        match="budget: 2 min is too short, because a run takes 60 min, and an answer needs at least 12 runs",
    ):
        preview(notebook(), question("more-workers", 120.0), description, took(3600.0))


def test_without_one_it_says_that_a_first_run_finds_out(description: Description) -> None:
    said = preview(notebook(), question("batch-and-rate"), description)
    assert said.plan == (
        "as it is; the best batch size and learning rate. First, Scalebook searches for the best batch size and "
        "learning rate. Then each side is run with fresh seeds. A pilot run of at most 3 min shows how long training "
        "takes, and so how much fits into 15 min."
    )
    with pytest.raises(
        ConfigError, match=r"budget: 30 s is too short, because a run takes a few seconds.* at least \d+s"
    ):
        preview(notebook(), question("more-workers", 30.0), description)


@pytest.mark.parametrize(
    ("seconds", "tags", "expected"),
    [
        (7.0, {}, RunTime(4.0, 7.0)),
        (0.0, {}, RunTime(STARTING_S, 11.0 - STARTING_S)),
        (7.0, {names.TAG_CLOCK: names.VIRTUAL}, RunTime(STARTING_S, 11.0 - STARTING_S)),
        (50.0, {}, RunTime(0.0, 11.0)),
    ],
)
def test_the_time_of_a_run_is_that_from_its_process_start_to_its_end(
    workspace: Workspace, seconds: float, tags: dict[str, str], expected: RunTime
) -> None:
    """11 s, of which 7 s are of training; MLflow has 8 s. Virtual seconds are no time, and none may be recorded."""
    job = JobFolder(workspace.jobs / "a")
    job.path.mkdir(parents=True)
    job.write(JobStart(LocalHandle.of_this_process(), 10.0))
    job.write(Progress(21.0, "ending", seconds=seconds))
    job.write(Result("finished", 21.0))
    assert taken(workspace, RunRecord("a", "a", "0", "FINISHED", 12.0, 20.0, tags)) == expected


def test_a_metric_that_was_not_logged_is_refused_before_it_starts(description: Description) -> None:
    known = took(60.0, "small")
    assert preview(notebook(), replace(question("more-workers"), metric="val/accuracy"), description, known)
    with pytest.raises(ConfigError) as no:
        preview(notebook(), replace(question("more-workers"), metric="val/acuracy"), description, known)
    assert str(no.value) == (
        "metric: val/acuracy is not logged by small. Choose a metric that is logged (val/accuracy, val/loss, "
        "train/loss), or log "
        "val/acuracy in the model."
    )
    asked = replace(question("a-or-b", against="large"), metric="val/f1")
    with pytest.raises(ConfigError, match="val/f1 is not logged by large"):
        preview(notebook(), asked, description, took(60.0, "large"))
    assert preview(notebook(), replace(question("more-workers"), metric="val/acuracy"), description), "nobody knows"


def test_a_and_b_are_called_by_their_names(description: Description) -> None:
    said = preview(notebook(), question("a-or-b", against="large"), description)
    assert said.plan.startswith("large; small. First, Scalebook searches for the best learning rate for each side.")
    assert (
        "Each side is compared at the best learning rate found, which can differ from the one in the config (0.1)"
    ) in said.plan
    sides = sides_of(notebook(), question("batch-and-rate"), description, TWO_CORES)
    assert [side.words for side in sides] == ["as it is", "the best batch size and learning rate"]


@pytest.mark.parametrize(
    ("name", "changes", "key"),
    [
        ("batch-and-rate", {"data": {"class_path": "mine.Data"}}, "batch_size"),
        ("more-workers", {"model": {"class_path": "mine.Model"}}, "model"),
        ("a-or-b", {}, "against"),
        ("gone", {}, "question"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_its_key(
    name: str, changes: dict[str, Any], key: str, description: Description
) -> None:
    with pytest.raises(ConfigError) as refusal:
        preview(notebook(**changes), question(name), description)
    assert refusal.value.problem.key == key


def test_an_experiment_that_is_gone_is_named(description: Description) -> None:
    with pytest.raises(ConfigError, match=r"experiment: smal is not an experiment of this notebook\. Did you mean"):
        preview(notebook(), AnswerCell("", "", "more-workers", "smal"), description)
