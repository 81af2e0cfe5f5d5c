"""Descriptions in MLflow: a way back that holds after a start on other ports, apart from what a person wrote."""

import json

from scalebook.training.tracking import names, notes

RUN = "0a" * 16


def test_a_run_leads_to_its_page_and_its_notebook_by_no_address() -> None:
    note = notes.of_run(RUN, "lab.md")
    assert f"](/scalebook/run/{RUN})" in note
    assert f"](/scalebook/run/{RUN}/notebook)" in note
    assert "To use them elsewhere, start `scalebook ui`" in note
    assert not any(word in note for word in ("http", "127.0.0.1", "token", "its trials"))
    assert "/notebook)" not in notes.of_run(RUN, None)
    assert "](#/experiments/7/runs?workflowType=machine_learning&searchFilter=tags.mlflow.parentRunId" in notes.of_run(
        RUN, None, trials="7"
    )


def test_what_a_person_wrote_is_told_from_it() -> None:
    ours = notes.of_run(RUN, "lab.md", "7")
    for said in ("", "Diverged *late*", "One\n\n[This run](http://x)\n\ntwo"):
        assert notes.split_note(notes.join_note(said, ours), RUN) == (said, ours)
    assert notes.split_note(f"above\n\n{ours}\n\nbelow", RUN) == ("above\n\nbelow", ours)
    assert notes.split_note("said before there were such", RUN) == ("said before there were such", "")
    assert notes.split_note(notes.of_run("0b" * 16, None), RUN)[1] == "", "of another run: a person has copied it"


def test_an_experiment_names_its_notebook_whatever_signs_that_has() -> None:
    note = notes.of_experiment("7", 'Grö_ße "b" [1] & <i>.md', "sea'rch")
    assert note.startswith(
        "Trials of the search sea'rch of the notebook "
        '[Grö\\_ße "b" \\[1\\] &amp; &lt;i&gt;]'
        "(/scalebook/notebook/Gr%C3%B6_%C3%9Fe%20%22b%22%20%5B1%5D%20%26%20%3Ci%3E?cell=sea%27rch)."
    )
    lab = notes.of_experiment("7", "lab.md")
    assert lab.startswith(
        "Runs of the notebook [lab](/scalebook/notebook/lab). [Table of strategies, rates and times](#/"
    )
    assert "[Charts, with the model's metrics first](#/" in lab
    assert notes.of_experiment("7", None).startswith("Runs started from the command line, not from a notebook. [Table")
    assert notes.charts("7") in lab


def test_names_of_experiments_differ_where_mlflow_cuts_them() -> None:
    named = ["do-more-workers-help", *(notes.trials_experiment("do-more-workers-help", name) for name in ("ab", "cd"))]
    assert len({name[:20] for name in named}) == 3


def test_the_list_of_runs_has_columns_of_strategies_times_and_what_the_models_log() -> None:
    before = json.loads(notes.model_first())["selectedColumns"]
    assert before[:3] == ["params.`strategy`", "params.`rule`", "params.`workers`"]
    assert {f"metrics.`{name}`" for name in (*names.COMPARED, names.UPDATES_PER_SECOND, names.TRAIN_LOSS)} <= {*before}
    view = notes.model_first()
    for logged in (["best/val_loss", "val_loss", "ps/staleness_mean"], ["best/val_acc"], []):
        view = notes.with_metrics(view, logged)
    columns = json.loads(view)["selectedColumns"]
    assert [column for column in columns if "best/" in column] == ["metrics.`best/val_acc`", "metrics.`best/val_loss`"]
    assert not {"metrics.`val_loss`", "metrics.`ps/staleness_mean`", "metrics.`train/loss`"} & {*columns}
    assert columns[-1] == f"tags.`{names.TAG_WORKERS_LOST}`"
    assert json.loads(view)["columnOrder"][-len(columns) :] == columns
    assert notes.with_metrics(view, ["best/val_loss"]) == view, "nothing new"
    assert json.loads(notes.with_metrics("no JSON", []))["selectedColumns"] == before
    own = notes.with_metrics(view, ["train_loss"])
    assert "metrics.`train_loss`" not in json.loads(own)["selectedColumns"], "there are validations"
    many = notes.with_metrics(view, [f"best/a rather long name of metric {number}" for number in range(99)])
    assert len(many) < 5000, "the longest tag of an experiment that MLflow takes"


def test_the_order_of_charts_has_ours_folded_up_and_the_axes_left_out() -> None:
    """What MLflow makes of it, a journey through its pages says (tests/e2e/test_mlflow_pages.py)."""
    state = json.loads(notes.model_first())
    shown = {section["name"]: section["display"] for section in state["compareRunSections"]}
    assert list(shown) == ["train", "Model metrics", "best", "final", "perf", "ps", "System metrics"]
    assert [name for name, is_open in shown.items() if not is_open] == ["perf", "ps", "System metrics"]
    assert {chart["metricKey"] for chart in state["compareRunCharts"] if chart["deleted"]} == {*names.AXES}
    assert len(notes.model_first()) < 5000, "the longest tag of an experiment that MLflow takes"
