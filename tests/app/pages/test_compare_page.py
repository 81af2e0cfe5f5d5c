import json

from scalebook.training.base.workspace import Workspace
from scalebook.training.tracking import names
from scalebook.training.tracking.run_start import open_store
from tests.app.pages.conftest import Open, html, number, words
from tests.app.recorded import config, record


def test_nothing_chosen_says_what_to_do(open_page: Open) -> None:
    assert "No runs chosen" in html(open_page("compare"))


def test_runs_stand_side_by_side(open_page: Open, workspace: Workspace) -> None:
    first = record(workspace, cell="a", level=2.0)
    second = record(workspace, cell="b", level=1.5, what=config(2, "ddp"))
    app = open_page("compare", runs=f"{first.id},{second.id}")
    shown = html(app)
    assert len(app.get("plotly_chart")) == 1
    assert "a · seed 1" in shown
    assert '<td class="num best">1.547</td>' in shown
    number(app, "Target").set_value("2,5").run()
    assert any("'2,5' is not a number" in one.value for one in app.error)
    number(app, "Target").set_value(2.5).run()
    assert "updates to 2.5" in html(app)
    assert "With one seed there is no interval" in words(app)


def test_runs_are_compared_with_those_of_one_process(open_page: Open, workspace: Workspace) -> None:
    """All seeds of the single process are the baseline of each run; the name of its cell says nothing."""
    alone = [record(workspace, cell="ddp", seed=seed, workers=1, what=config(1, "auto")).id for seed in (1, 2)]
    two = record(workspace, cell="one-process", what=config(2, "ddp")).id
    app = open_page("compare", runs=",".join([*alone, two]))
    shown = html(app)
    assert "samples/s x one process" in shown
    assert shown.count('<td class="num">baseline</td>') == 2
    assert '<td class="num">1.00</td>' in shown
    assert "x one process: the figure divided by the figure of ddp, with the 95 % interval in brackets." in words(app)
    number(app, "Target").set_value(2.5).run()
    assert "seconds x one process" in html(app)
    assert "samples x one process" in html(app)


def test_an_unknown_run_is_named_and_the_others_shown(open_page: Open, workspace: Workspace) -> None:
    job = record(workspace, cell="a")
    app = open_page("compare", runs=f"{job.id},{'f' * 32}")
    assert "f" * 32 in app.warning[0].value
    assert "a · seed 1" in html(app)


def test_target_scale_and_grouping_come_from_the_address(open_page: Open, workspace: Workspace) -> None:
    ids = [record(workspace, cell="a", seed=seed).id for seed in (1, 2)]
    app = open_page("compare", runs=",".join(ids), target="2.5", log="true", grouped="true")
    assert number(app, "Target").value == 2.5
    assert {one.label: one.value for one in app.toggle} == {"Log scale": True, "Group seeds": True}
    assert "updates to 2.5" in html(app)
    assert '<td class="num">2</td>' in html(app), "two runs in one row"
    assert "The configs of these runs do not differ." in words(app)


def test_several_metrics_each_have_a_chart_and_the_first_the_table(open_page: Open, workspace: Workspace) -> None:
    app = open_page("compare", runs=record(workspace, cell="a").id, smooth="0.5")
    app.multiselect(key="more-val/bits_per_dim").select("train/loss").run()
    drawn = [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]
    assert [chart["layout"]["yaxis"]["title"]["text"] for chart in drawn] == ["val/bits_per_dim", "train/loss"]
    assert [len(chart["data"]) for chart in drawn] == [2, 2]  # as logged, and smoothed
    assert "best val/bits_per_dim" in html(app)


def test_what_was_measured_stands_side_by_side_and_says_why(open_page: Open, workspace: Workspace) -> None:
    first, second = record(workspace, cell="a"), record(workspace, cell="b")
    store = open_store(workspace)
    store.log_metric(second.id, names.COMMUNICATE_SHARE, 0.43, step=1200)
    app = open_page("compare", runs=f"{first.id},{second.id}")
    shown = html(app)
    assert '<td class="dim">perf/communicate_share</td><td class="num">0.1500</td><td class="num">0.4300</td>' in shown
    assert '<td class="dim">ps/staleness_mean</td><td class="num">0.9700</td><td class="num">0.9700</td>' in shown
    assert "worker_0" not in shown
    assert shown.count('title="communicate 15.0%"') == 1
    assert "**b · seed 1**: 43 % of its time goes into communication." in words(app)
    assert "**a · seed 1**" not in words(app), "nothing of it differs notably"
    app.multiselect(key="more-val/bits_per_dim").select(names.STALENESS_MEAN).run()
    assert len(app.get("plotly_chart")) == 2


def test_the_metric_comes_from_the_address(open_page: Open, workspace: Workspace) -> None:
    job = record(workspace, cell="a")
    app = open_page("compare", runs=job.id, metric="train/loss", target="2.5")
    assert "best train/loss" in html(app)
    app.selectbox(key="metric-train/loss").select("val/bits_per_dim").run()
    assert app.query_params["metric"] == "val/bits_per_dim"
    assert "best val/bits_per_dim" in html(app)
    assert "best val/bits_per_dim" in html(open_page("compare", runs=job.id, metric="no/such"))


def test_a_run_that_lost_a_worker_says_so_beside_its_figures(open_page: Open, workspace: Workspace) -> None:
    whole, lost = record(workspace, cell="a"), record(workspace, cell="b")
    open_store(workspace).set_tag(lost.id, names.TAG_WORKERS_LOST, "worker 1 died")
    app = open_page("compare", runs=f"{whole.id},{lost.id}")
    assert html(app).count("lost a worker</span>") == 1
    assert any("1 of 1 run lost a worker and continued" in one.value for one in app.caption)


def test_peak_memory_is_named_as_that_of_one_worker(open_page: Open, workspace: Workspace) -> None:
    """Else two workers that each need 160 MB would seem to need less than one process with 190."""
    several = [record(workspace, cell=cell).id for cell in "ab"]
    app = open_page("compare", runs=",".join(several))
    assert "system/peak_memory_megabytes of worker 0" in html(app)
    assert any(one.value.startswith("Peak memory is that of worker 0 only") for one in app.caption)
    one = [record(workspace, cell=cell, workers=1).id for cell in "ab"]
    app = open_page("compare", runs=",".join(one))
    assert ">system/peak_memory_megabytes<" in html(app)
