from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from scalebook.app.search import learning_curves, trial_charts, trial_data, trial_map
from scalebook.training.experiments.search.types import Objective
from scalebook.training.search.study.trials import TrialRecord
from scalebook.training.search.study.trials import pareto as pareto_of
from tests.app import searches

SPEC = searches.spec()
TOLD = searches.records(SPEC, 250, running=3)
FIGURE_BYTES = 1_500_000


def named(figure: go.Figure, name: str) -> list[Any]:
    return [trace for trace in figure.data if trace.name == name]


def drawn(figure: go.Figure | None) -> go.Figure:
    assert figure is not None
    return figure


def test_a_thousand_trials_make_light_figures() -> None:
    told = searches.records(SPEC, 1000)
    figures = {
        "progress": trial_charts.progress(told, SPEC, False),
        "map": trial_map.draw(told, SPEC, "batch_size", "learning_rate", ("strategy", "workers"), False),
        "curves": learning_curves.draw(told, SPEC, False),
        "parallel": trial_charts.parallel(told, SPEC, False),
        "pareto": trial_charts.pareto(told, SPEC, False),
    }
    sizes = {name: len(drawn(one).to_json()) for name, one in figures.items()}
    assert {name: size for name, size in sizes.items() if size > FIGURE_BYTES} == {}
    assert all(len(drawn(one).data) < 60 for one in figures.values())


def test_long_curves_are_thinned() -> None:
    long = [
        TrialRecord(
            i, "finished", {"batch_size": 16}, values=(1.0,), curve=[(at, 1.0 + 1 / at) for at in range(1, 3001)]
        )
        for i in range(100)
    ]
    figure = drawn(learning_curves.draw(long, SPEC, False))
    assert sum(len(trace.x) for trace in figure.data) < 100 * 60
    assert len(figure.to_json()) < FIGURE_BYTES


def test_the_best_so_far_falls_in_steps() -> None:
    line = named(drawn(trial_charts.progress(TOLD, SPEC, False)), "best so far")[0]
    best = trial_data.best(TOLD, SPEC)
    assert best is not None
    assert line.line.shape == "hv"
    assert list(line.y) == sorted(line.y, reverse=True)
    assert line.y[-1] == best.values[0]
    assert line.x[-1] == 246, "up to the last trial that has ended"


def test_trials_without_a_value_stand_on_the_rail() -> None:
    figure = drawn(trial_charts.progress(TOLD, SPEC, False))
    rail = named(figure, "diverged")[0].y
    assert len(set(rail)) == 1
    assert rail[0] == max(max(trace.y) for trace in figure.data if trace.name != "best so far")
    assert len(named(figure, "finished")[0].x) == trial_data.counts(TOLD)["finished"]
    assert named(figure, "running") == []


def test_where_more_is_better_the_best_so_far_rises() -> None:
    spec = searches.spec(objectives=(Objective("val/accuracy", False),))
    told = [TrialRecord(i, "finished", {}, values=(value,)) for i, value in enumerate((0.5, 0.4, 0.9))]
    figure = drawn(trial_charts.progress([*told, TrialRecord(3, "failed", {}, failure="killed")], spec, False))
    assert list(named(figure, "best so far")[0].y) == [0.5, 0.9, 0.9]
    low, high = figure.layout.yaxis.range
    assert low < named(figure, "failed")[0].y[0] < 0.4
    assert high > 0.9


def test_the_map_has_a_panel_for_each_category_and_one_legend() -> None:
    figure = trial_map.draw(TOLD, SPEC, "batch_size", "learning_rate", ("strategy",), False)
    titles = [one.text for one in figure.layout.annotations][:3]
    assert titles == ["single", "ddp", "async"]
    assert sum(isinstance(trace, go.Contour) for trace in figure.data) == 3
    legend = [trace.name for trace in figure.data if trace.showlegend]
    assert len(legend) == len(set(legend))
    assert {"finished", "pruned", "out of memory", "diverged", "best", "rate / batch", "running"} <= set(legend)
    assert len(named(figure, "best")) == 1, "one star in all panels"
    shown = sum(len(trace.x) for trace in named(figure, "finished") if trace.x[0] is not None)
    assert shown == trial_data.counts(TOLD)["finished"]


def test_every_lowest_panel_has_its_values_written_below() -> None:
    figure = trial_map.draw(TOLD, SPEC, "batch_size", "learning_rate", ("strategy", "workers"), False)
    axes = {axis: figure.layout[axis] for axis in ("xaxis", "xaxis2", "xaxis3", "xaxis4", "xaxis5")}
    assert [name for name, axis in axes.items() if axis.title.text] == ["xaxis3", "xaxis4", "xaxis5"]
    assert axes["xaxis3"].showticklabels is True


def test_the_wall_is_a_band_to_the_right() -> None:
    plain = searches.spec((searches.BATCH, searches.RATE))
    figure = trial_map.draw(searches.records(plain, 200), plain, "batch_size", "learning_rate", (), False)
    band, edge = figure.layout.shapes
    assert 5 / 6 < band.x0 < 1
    assert band.x1 > 1
    assert edge.x0 == band.x0
    assert "out of memory" in [one.text for one in figure.layout.annotations]


def test_the_map_says_what_lies_together() -> None:
    words = trial_map.reading(SPEC, "batch_size", "learning_rate", ("strategy",))
    assert "differ only in workers" in words
    assert "constant ratio of learning rate to batch size" in words
    assert "differ" not in trial_map.reading(SPEC, "batch_size", "learning_rate", ("strategy", "workers"))


def test_the_map_of_the_second_objective_has_its_own_colours() -> None:
    spec = searches.spec(objectives=(Objective("val/loss", True), Objective("seconds", True)))
    told = searches.records(spec, 200)
    figure = trial_map.draw(told, spec, "batch_size", "learning_rate", (), False, objective=1)
    assert figure.layout.coloraxis.colorbar.title.text == "seconds"
    fastest = min((one for one in told if one.values), key=lambda one: one.values[1])
    star = named(figure, "best")[0]
    assert star.x[0] == pytest.approx(np.log2(fastest.point["batch_size"] / 16) / 6, abs=1e-6)


def drawn_within(figure: go.Figure, axis: str) -> bool:
    """Whether every point of every trace lies between the ends of its axis."""
    ends = sorted(figure.layout[f"{axis}axis"].range)
    if figure.layout[f"{axis}axis"].type == "log":
        ends = [10**one for one in ends]
    told = np.concatenate([np.asarray(trace[axis], dtype=float) for trace in figure.data if trace[axis] is not None])
    told = told[np.isfinite(told)]
    return bool(ends[0] <= told.min() and told.max() <= ends[1])


WORST = TrialRecord(0, "finished", {"batch_size": 16, "learning_rate": 0.5}, values=(900.0,), seconds=700.0,
                    curve=[(1437, 2.0), (2874, 900.0)])  # fmt: skip
BY_HAND = TrialRecord(
    251, "finished", {"batch_size": 4096, "learning_rate": 5.0}, values=(0.5,), seconds=2.0, given=True
)


def test_axes_contain_all_that_is_drawn() -> None:
    plain = searches.spec((searches.BATCH, searches.RATE))
    told = [WORST, *searches.records(plain, 250)[1:], BY_HAND]
    front = drawn(trial_charts.pareto(told, plain, False))
    assert [drawn_within(front, axis) for axis in "xy"] == [True, True]
    assert drawn_within(drawn(trial_charts.progress(told, plain, False)), "y")
    assert drawn_within(drawn(learning_curves.draw(told, plain, False)), "y")
    hover = [
        trace.customdata for trace in drawn(learning_curves.draw(told, plain, False)).data if trace.mode == "lines"
    ]
    assert 900.0 in {float(one) for each in hover if each is not None for one in each[:, 1]}, "what it is, not the edge"
    over = trial_map.draw(told, plain, "batch_size", "learning_rate", (), False)
    shown = [trace for trace in over.data if trace.type == "scatter" and trace.mode == "markers"]
    shown = [trace for trace in shown if trace.x[0] is not None]
    for axis in "xy":
        low, high = over.layout[f"{axis}axis"].range
        assert all(low <= min(trace[axis]) and max(trace[axis]) <= high for trace in shown)
    axes = drawn(trial_charts.parallel(told, plain, False)).data[0].dimensions
    assert all(one.range[0] <= min(one["values"]) and max(one["values"]) <= one.range[1] for one in axes)


@pytest.mark.parametrize("lower", [True, False])
def test_one_trial_far_worse_than_the_rest_does_not_flatten_a_search_that_runs(lower: bool) -> None:
    sign = 1 if lower else -1
    spec = searches.spec(objectives=(Objective("val_score", lower),))

    def trial(number: int, *values: float) -> TrialRecord:
        curve = [(100 * (at + 1), sign * value) for at, value in enumerate(values)]
        return TrialRecord(number, "running", {"batch_size": 16}, curve=curve)

    good = [trial(i, 2.5, 0.9 + i / 50, 0.4 + i / 50) for i in range(5)]

    def worst_end(told: list[TrialRecord]) -> float:
        low, high = drawn(learning_curves.draw(told, spec, False)).layout.yaxis.range
        if lower and high < np.log10(2.9):  # a logarithmic axis is in powers of ten
            low, high = 10**low, 10**high
        return float(high if lower else -low)

    assert 2.3 < worst_end(good) < 3
    for outlier in (trial(9, 300.0, 310.0, 305.0), trial(9, 300.0, 0.7, 0.6), trial(9, 1e6), trial(9, float("inf"))):
        assert 2.3 < worst_end([*good, outlier]) < 3, "it runs along the edge, as the caption says"
    assert 290 < worst_end([trial(i, 300.0, 250.0, 200.0) for i in range(5)]) < 330, "where all are so, none is worse"


def test_pruned_curves_end_where_they_were_given_up() -> None:
    figure = drawn(learning_curves.draw(TOLD, SPEC, False))
    pruned = [one for one in TOLD if one.state == "pruned"]
    ends = named(figure, "pruned")[0]
    assert sorted(ends.x) == pytest.approx(sorted(float(one.curve[-1][0]) for one in pruned))
    best = trial_data.best(TOLD, SPEC)
    assert best is not None
    last = figure.data[-2]
    assert last.name.startswith(f"best: trial {best.number}, ")
    assert last.y[-1] == pytest.approx(best.curve[-1][1])


def test_parallel_lines_end_apart_when_a_trial_could_not_run() -> None:
    figure = drawn(trial_charts.parallel(TOLD, SPEC, True))
    axes = {one.label: one for one in figure.data[0].dimensions}
    assert list(axes) == ["batch size", "learning rate", "strategy", "workers", "val/loss"]
    values = np.array(axes["val/loss"]["values"])
    counts = trial_data.counts(TOLD)
    assert len(values) == counts["finished"] + counts["infeasible"]
    assert (values < 0).sum() == counts["infeasible"]
    assert axes["val/loss"].ticktext[0] == "could not run"
    assert list(axes["strategy"].ticktext) == ["single", "ddp", "async"]
    assert all(0 <= one <= 1 for one in axes["strategy"]["values"])


def test_importance_is_read_from_the_top() -> None:
    figure = trial_charts.importance({"batch_size": 0.7, "learning_rate": 0.298, "workers": 0.002}, False)
    assert list(figure.data[0].y) == ["workers", "learning rate", "batch size"]
    assert list(figure.data[0].text) == ["<1%", "30%", "70%"]


def test_the_front_is_that_of_the_search() -> None:
    spec = searches.spec(objectives=(Objective("val/loss", True), Objective("seconds", True)))
    told = searches.records(spec, 300)
    front = named(drawn(trial_charts.pareto(told, spec, False)), "front")[0]
    expected = sorted((one.values[1], one.values[0]) for one in pareto_of(told, spec))
    assert list(front.x) == pytest.approx([seconds for seconds, _ in expected])
    assert list(front.y) == pytest.approx([loss for _, loss in expected])
    assert front.y[0] > front.y[-1]


def test_with_one_objective_the_seconds_stand_beside_it() -> None:
    figure = drawn(trial_charts.pareto(TOLD, SPEC, False))
    assert figure.layout.xaxis.title.text == "seconds"
    assert "at the same time" in trial_charts.pareto_reading(SPEC)
    assert "at the same time" not in trial_charts.pareto_reading(searches.spec(exclusive=True))


@pytest.mark.parametrize("told", [[], [TrialRecord(0, "running", {"batch_size": 16, "learning_rate": 0.1})]])
def test_before_the_first_trial_has_ended_there_is_no_figure(told: list[TrialRecord]) -> None:
    assert trial_charts.progress(told, SPEC, False) is None
    assert learning_curves.draw(told, SPEC, False) is None
    assert trial_charts.parallel(told, SPEC, False) is None
    assert trial_charts.pareto(told, SPEC, False) is None
    trial_map.draw(told, SPEC, "batch_size", "learning_rate", (), False)


def test_a_search_in_which_nothing_could_run_is_drawn() -> None:
    told = [TrialRecord(i, "infeasible", {"batch_size": 1024, "learning_rate": 0.1 * (i + 1)}, failure="out of memory")
            for i in range(5)]  # fmt: skip
    plain = searches.spec((searches.BATCH, searches.RATE))
    assert drawn(trial_charts.progress(told, plain, False)).data[0].name == "out of memory"
    figure = trial_map.draw(told, plain, "batch_size", "learning_rate", (), False)
    assert [trace.name for trace in figure.data if trace.name] == ["rate / batch", "out of memory"]
    assert list(figure.data[0].x).count(None) == 4, "lines, with a gap after each"


def test_where_the_field_ends_the_map_says_why() -> None:
    """Tinted where the trials near by could not run; what is neither that nor the field was not tried near by."""
    plain = searches.spec((searches.BATCH, searches.RATE))
    figure = trial_map.draw(searches.records(plain, 300), plain, "batch_size", "learning_rate", (), False)
    tint = next(trace for trace in figure.data if isinstance(trace, go.Heatmap))
    field = next(trace for trace in figure.data if isinstance(trace, go.Contour))
    refused, shown = ~np.isnan(np.asarray(tint.z, float)), ~np.isnan(np.asarray(field.z, float))
    assert refused.any()
    assert not (refused & shown).any()
    assert refused[-5:, 5:40].mean() > 0.5 > refused[:30, 5:40].mean(), "rates that are too high, at small batches"
    assert named(figure, "nearby trials could not run")[0].showlegend
    assert "Blank areas: there is no trial nearby" in trial_map.reading(plain, "batch_size", "learning_rate", ())


def test_every_mark_says_which_trial_it_is() -> None:
    figures = {
        "progress": trial_charts.progress(TOLD, SPEC, False),
        "map": trial_map.draw(TOLD, SPEC, "batch_size", "learning_rate", (), False),
        "curves": learning_curves.draw(TOLD, SPEC, False),
        "pareto": trial_charts.pareto(TOLD, SPEC, False),
    }
    ended = {record.number for record in TOLD if record.state == "finished"}
    for name, figure in figures.items():
        dots = [trace for trace in drawn(figure).data if isinstance(trace, go.Scatter)]
        marks = [trace for trace in dots if trace.mode == "markers" and trace.text is not None]
        numbers = [int(number) for trace in marks for number in trace.customdata]
        assert ended <= set(numbers), name
