"""Where a page guesses what is better of a metric, one click turns it: then it judges by the other."""

import re
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from scalebook.app import resources
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments import catalogue
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.identity import config_hash
from scalebook.training.notebook import store
from scalebook.training.tracking import names
from tests.app.pages.conftest import TEXT, Open, html
from tests.app.recorded import record

METRIC = "val_zeal"
"""A name that tells nothing. Of each run it falls, so that its best value is the first or the last."""
GUESSED, TURNED = f"{METRIC}: lower is better, guessed", f"{METRIC}: higher is better"
CELL = "pixelcnn-async-2"
OTHER = "```yaml" + TEXT.partition("```yaml")[2].replace(CELL, "slow").replace("lr: 0.001", "lr: 0.01")
LEVELS = {CELL: 1.0, "slow": 3.0}


@pytest.fixture
def path(workspace: Workspace) -> Path:
    """A notebook of two experiments that have run, three seeds each; the first has the smaller values."""
    found = workspace.root / "first-steps.md"
    found.write_text(f"{TEXT}\n{OTHER}".replace("repeats: 2", "repeats: 3"), encoding="utf-8")
    description = catalogue.describe(workspace)
    for cell in store.read(found).notebook.experiments():
        hashed = config_hash(Experiment.read(cell.config, description))
        for seed in (1, 2, 3):
            level = LEVELS[cell.name] + 0.01 * seed
            record(workspace, cell=cell.name, seed=seed, config_hash=hashed, level=level, metric=METRIC)
    return found


def add(path: Path, cell: str) -> None:
    path.write_text(f"{path.read_text(encoding='utf-8')}\n{cell}", encoding="utf-8")


def said(app: AppTest) -> list[str]:
    """What it says is better of what, in the words of a guess."""
    return [one.value for one in app.caption if one.value.startswith(f"{METRIC}: ")]


def turn(app: AppTest, label: str = "Higher is better", key: str = "") -> AppTest:
    found = [one for one in app.button if one.label == label and str(one.key).startswith(key)]
    found[0].click().run()
    assert not app.exception, app.exception[0].value
    return app


def best(app: AppTest) -> list[str]:
    """The figures in bold of the page's tables."""
    return re.findall('<td class="num best">([^<]*)<', html(app))


@pytest.mark.thorough
def test_a_comparison_s_card_is_turned(open_page: Open, path: Path) -> None:
    add(path, f"```yaml comparison=both\nruns: [{CELL}, slow]\nmetric: {METRIC}\n```\n")
    app = open_page()
    (before,) = best(app)
    assert before.startswith("1.0"), "the smaller"
    turn(app, key="better-both")
    (after,) = best(app)
    assert after.startswith("4.7"), "the first value of the other experiment"
    assert f"metric: {{{METRIC}: max}}" in path.read_text(encoding="utf-8")
    assert not [one for one in app.button if str(one.key).startswith("better-both")], "it is no guess any more"


def test_a_claim_s_card_is_turned_and_its_verdict_with_it(open_page: Open, path: Path) -> None:
    add(path, f"```yaml claim=less\nruns: {CELL}\nfigure: best\nmetric: {METRIC}\nat_most: 2\n```\n")
    app = open_page()
    assert ">supported</span>" in html(app), "its smallest value is 1"
    turn(app, key="better-less")
    assert f"metric: {{{METRIC}: max}}" in path.read_text(encoding="utf-8")
    assert ">refuted</span>" in html(app), "its largest is 2.8"


@pytest.mark.thorough
def test_a_claim_of_ratios_is_turned_in_each_of_them(open_page: Open, path: Path) -> None:
    third, fourth = (OTHER.replace("=slow", f"={name}") for name in ("third", "fourth"))
    ratios = (
        f"```yaml claim=ratios\nruns: {{of: {CELL}, against: slow}}\nagainst: {{of: third, against: fourth, "
        f"metric: {METRIC}}}\nfigure: best\nat_most: 2\n```\n"
    )
    add(path, f"{third}\n{fourth}\n{ratios}")
    app = open_page()
    assert said(app) == [GUESSED] * 3, "of both experiments that have run, and of the claim, once"
    turn(app, key="better-ratios")
    assert path.read_text(encoding="utf-8").endswith(
        f"runs: {{of: {CELL}, against: slow, metric: {{{METRIC}: max}}}}\nagainst: {{of: third, against: fourth, "
        f"metric: {{{METRIC}: max}}}}\nfigure: best\nat_most: 2\n```\n"
    )
    assert said(app) == [GUESSED] * 2
    assert not [one for one in app.button if str(one.key).startswith("better-ratios")]
    assert f"Higher is better of {METRIC}." in [one.value for one in app.caption]


def test_an_experiment_s_card_is_turned_and_back(open_page: Open, path: Path) -> None:
    """Of all its runs; the other experiment's stay as they are."""

    def recorded() -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for run in resources.reader().runs():
            found.setdefault(run.cell or "", set()).add(f"{run.metrics[names.best(METRIC)]:.1f}")
        return found

    app = open_page()
    assert said(app) == [GUESSED, GUESSED]
    low = recorded()
    assert low[CELL] == {"1.1"}
    turn(app, key=f"better-{CELL}")
    assert said(app) == [TURNED, GUESSED]
    assert recorded() == {CELL: {"2.8"}, "slow": low["slow"]}
    assert html(app).count(">2.78") + html(app).count(">2.79") >= 3, "the card shows them"
    turn(app, "Lower is better", f"better-{CELL}")
    assert recorded() == low


def test_a_run_s_own_page_is_turned(open_page: Open, path: Path) -> None:
    run = next(one for one in resources.reader().runs() if one.cell == CELL)
    app = open_page("runs", run=run.id)
    assert said(app) == [GUESSED]
    turn(app)
    assert said(app) == [TURNED]
    assert resources.reader().run(run.id).metrics[names.best(METRIC)] > 2.7
    assert f"best {METRIC}" in html(app)


@pytest.mark.thorough
def test_compare_is_turned_and_back(open_page: Open, path: Path) -> None:
    runs = {run.cell: run.id for run in resources.reader().runs()}
    app = open_page("compare", runs=f"{runs[CELL]},{runs['slow']}")
    assert said(app) == [GUESSED]
    (before,) = best(app)
    assert before.startswith("1.0")
    turn(app)
    assert said(app) == [TURNED]
    assert app.query_params["better"] == f"max:{METRIC}", "the address says it to whoever gets it"
    (after,) = best(app)
    assert after.startswith("4.7")
    turn(app, "Lower is better")
    assert best(app) == [before]
