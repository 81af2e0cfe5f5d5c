"""Comparisons made, edited and saved in the browser."""

import json
import math
from typing import Any
from urllib.parse import parse_qsl

import pytest
from streamlit.testing.v1 import AppTest

from scalebook.app.shared.words import interval
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments import catalogue
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.identity import config_hash
from scalebook.training.notebook import store
from tests.app.pages.conftest import TEXT, Open, html, number, words
from tests.app.pages.test_notebook_page import press
from tests.app.recorded import config, record

pytestmark = pytest.mark.long

OTHER = """
```yaml experiment=alone
config:
  model: {class_path: scalebook.training.zoo.models.PixelCNN}
  data: {class_path: scalebook.training.zoo.data.Digits}
```
"""
BOTH = """
```yaml comparison=both
runs: [pixelcnn-async-2, gone]   # which
metric: val/loss
x: samples
```
"""


def test_a_comparison_of_all_experiments_is_added_and_undone(open_page: Open, workspace: Workspace) -> None:
    path = workspace.root / "first-steps.md"
    path.write_text(TEXT + OTHER, encoding="utf-8")
    app = press(open_page(), "Add a comparison")
    chosen = next(one for one in app.multiselect if one.label == "Experiments")
    assert chosen.value == ["pixelcnn-async-2", "alone"]
    chosen.set_value([]).run()
    assert app.button(key="comparison-save").disabled
    assert any("Experiments: is empty" in one.value for one in app.caption)
    next(one for one in app.multiselect if one.label == "Experiments").set_value(["alone", "pixelcnn-async-2"]).run()
    next(one for one in app.multiselect if one.label == "X axis").set_value(["seconds", "updates"]).run()
    number(app, "Target").set_value("2,5").run()
    assert app.button(key="comparison-save").disabled
    number(app, "Target").set_value(2.5).run()
    next(one for one in app.toggle if one.label == "Log scale").set_value(True).run()
    app.button(key="comparison-save").click().run()
    assert not app.exception
    assert path.read_text(encoding="utf-8") == TEXT + OTHER + (
        "\n```yaml comparison=comparison\nruns: [alone, pixelcnn-async-2]\nmetric: val/bits_per_dim\n"
        "x: [seconds, updates]\ntarget: 2.5\nscale: log\n```\n"
    )
    assert not [one for one in app.button if one.key == "comparison-save"], "the dialog is closed"
    assert ">comparison</h2>" in html(app)
    press(app, "Undo")
    assert path.read_text(encoding="utf-8") == TEXT + OTHER


def test_one_that_is_there_is_edited_and_keeps_its_comments(open_page: Open, workspace: Workspace) -> None:
    path = workspace.root / "first-steps.md"
    path.write_text(TEXT + BOTH, encoding="utf-8")
    cell = store.read(path).notebook.experiments()[0]
    record(workspace, seed=1, config_hash=config_hash(Experiment.read(cell.config, catalogue.describe(workspace))))
    app = open_page()
    app.button(key="edit-both").click().run()
    chosen = next(one for one in app.multiselect if one.label == "Experiments")
    assert chosen.options == ["pixelcnn-async-2", "gone (not in this notebook)"]
    chosen.set_value(["pixelcnn-async-2"]).run()
    next(one for one in app.text_input if one.label == "Name").set_value("pixelcnn-async-2").run()
    assert any("is already used in this notebook" in one.value for one in app.caption)
    next(one for one in app.text_input if one.label == "Name").set_value("mine").run()
    next(one for one in app.selectbox if one.label == "Metric").set_value("val/bits_per_dim").run()
    next(one for one in app.toggle if one.label == "Log scale").set_value(True).run()
    app.button(key="comparison-save").click().run()
    changed = BOTH.replace("=both", "=mine").replace(", gone]", "]").replace("val/loss", "val/bits_per_dim")
    assert path.read_text(encoding="utf-8") == TEXT + changed.replace("x: samples\n", "x: samples\nscale: log\n")
    (chart,) = app.get("plotly_chart")
    layout = json.loads(chart.proto.spec)["layout"]
    assert (layout["xaxis"]["title"]["text"], layout["yaxis"]["type"]) == ("samples", "log")


def test_it_is_moved_like_any_cell(open_page: Open, workspace: Workspace) -> None:
    path = workspace.root / "first-steps.md"
    path.write_text(TEXT + OTHER, encoding="utf-8")
    app = open_page()
    app.menu_button(key="more-pixelcnn-async-2").click("Add a comparison below").run()
    app.button(key="comparison-save").click().run()
    names = [getattr(one, "name", "note") for one in store.read(path).notebook.cells]
    assert names == ["note", "pixelcnn-async-2", "comparison", "alone"]
    assert store.read(path).notebook.comparisons()[0].runs == ["pixelcnn-async-2"]
    app.menu_button(key="more-comparison").click("Move up").run()
    names = [getattr(one, "name", "note") for one in store.read(path).notebook.cells]
    assert names == ["note", "comparison", "pixelcnn-async-2", "alone"]


@pytest.mark.thorough
def test_the_runs_of_the_compare_page_become_a_cell_of_their_notebook(open_page: Open, workspace: Workspace) -> None:
    path = workspace.root / "first-steps.md"
    path.write_text(TEXT + OTHER, encoding="utf-8")
    renamed = config_hash(
        Experiment.read(store.read(path).notebook.experiments()[1].config, catalogue.describe(workspace))
    )
    ids = [record(workspace, seed=seed).id for seed in (1, 2)]
    ids.append(record(workspace, cell="as-it-was-called", config_hash=renamed).id)
    ids.append(record(workspace, cell="away", what=config(3)).id)
    app = press(open_page("compare", runs=",".join(ids), target="2.5", x="samples"), "Save in a notebook")
    assert "Left out, because this notebook has no such experiment: away seed 1." in words(app)
    app.button(key="comparison-save").click().run()
    assert not app.exception
    assert path.read_text(encoding="utf-8").endswith(
        "\n```yaml comparison=comparison\nruns: [pixelcnn-async-2, alone]\nmetric: val/bits_per_dim\n"
        "x: [samples]\ntarget: 2.5\n```\n"
    )
    assert app.query_params["notebook"] == "first-steps"
    assert "Does staleness hurt?" in words(app)


def test_runs_of_no_experiment_cannot_be_saved_and_it_is_said(open_page: Open, workspace: Workspace) -> None:
    job = record(workspace, cell="gone")
    app = press(open_page("compare", runs=job.id), "Save in a notebook")
    assert [one.value for one in app.toast] == ["None of these runs belongs to an experiment in a notebook."]


def chosen(app: AppTest) -> list[str]:
    return list(next(one for one in app.multiselect if one.label == "Experiments").value)


def called(app: AppTest) -> Any:
    return next(one for one in app.text_input if one.label == "Name")


@pytest.mark.thorough
def test_a_comparison_that_was_begun_is_a_draft_until_it_is_saved_or_given_up(
    open_page: Open, workspace: Workspace
) -> None:
    path = workspace.root / "first-steps.md"
    path.write_text(TEXT + OTHER, encoding="utf-8")
    app = press(open_page(), "Add a comparison")
    assert not list(workspace.cache.glob("comparison-draft-*")), "nothing was changed yet"
    next(one for one in app.multiselect if one.label == "Experiments").set_value(["alone"]).run()
    called(app).set_value("mine").run()
    app = open_page()  # a reload: another session
    assert any("**Draft** of a new comparison, last changed" in one.value for one in app.caption)
    assert "mine: alone" in html(app)
    app.button(key="continue-draft-comparison-0").click().run()
    assert (chosen(app), any("**Draft** of this comparison" in one.value for one in app.caption)) == (["alone"], True)
    app.button(key="discard-draft-comparison").click().run()
    assert chosen(app) == ["pixelcnn-async-2", "alone"], "as it would have begun"
    assert not list(workspace.cache.glob("comparison-draft-*"))
    called(app).set_value("another").run()
    app.button(key="comparison-cancel").click().run()
    assert not list(workspace.cache.glob("comparison-draft-*")), "given up"
    called(press(app, "Add a comparison")).set_value("mine").run()
    app = press(open_page(), "Add a comparison")
    assert called(app).value == "mine"
    app.button(key="comparison-save").click().run()
    assert "```yaml comparison=mine\n" in path.read_text(encoding="utf-8")
    assert not list(workspace.cache.glob("comparison-draft-*"))
    assert not any("**Draft**" in one.value for one in app.caption)


def test_run_by_run_keeps_metric_target_and_axis_and_cards_have_a_mean(open_page: Open, workspace: Workspace) -> None:
    path = workspace.root / "first-steps.md"
    told = BOTH.replace("val/loss", "train/loss\ntarget: 2.5\nscale: log").replace(", gone]", "]")
    path.write_text(TEXT + told, encoding="utf-8")
    hashed = config_hash(
        Experiment.read(store.read(path).notebook.experiments()[0].config, catalogue.describe(workspace))
    )
    ids = [record(workspace, seed=seed, level=1.0 + seed, config_hash=hashed).id for seed in (1, 2)]
    app = open_page()
    link = next(one.proto for one in app.get("page_link") if one.proto.label == "Run by run")
    asked = dict(parse_qsl(link.query_string))
    assert asked == {"runs": ",".join(ids), "metric": "train/loss", "x": "samples", "target": "2.5", "log": "true"}
    shown = html(app)
    assert '<td class="dim">mean of 2</td>' in shown
    best = [1.0 + seed + 2.0 * math.exp(-30 / 8) for seed in (1, 2)]
    assert interval(sum(best) / 2, 12.706205 * 0.5) in shown, "half of the 95 % interval of two seeds"


def test_a_comparison_begins_with_the_runs_of_one_model(open_page: Open, workspace: Workspace) -> None:
    """Not with experiments of other models, nor with one that has failed; in a metric that all of them log."""
    path = workspace.root / "first-steps.md"
    classifier = OTHER.replace("PixelCNN", "ConvClassifier").replace("=alone", "=classifier")
    failing, new = OTHER.replace("=alone", "=failing"), OTHER.replace("=alone", "=new")
    path.write_text(TEXT + OTHER + failing + classifier + new, encoding="utf-8")
    for cell in ("pixelcnn-async-2", "alone"):
        record(workspace, cell=cell)
    record(workspace, cell="failing", state="failed")
    record(workspace, cell="alone", seed=2, metric="val/only_here")
    app = press(open_page(), "Add a comparison")
    assert chosen(app) == ["pixelcnn-async-2", "alone"]
    metric = next(one for one in app.selectbox if one.label == "Metric")
    assert metric.value == "val/bits_per_dim"
