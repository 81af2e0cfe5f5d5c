"""Curves and maps as SVG: what is drawn, and how much of it."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from scalebook.training.export.curve_chart import LOG_FROM, MOST_CURVES, POINTS, DrawnCurve, curve_chart
from scalebook.training.export.drawing import WIDTH, ValueAxis
from scalebook.training.export.map_chart import map_chart
from scalebook.training.search.study.trials import best
from tests.app import searches


def drawn(svg: str) -> list[tuple[float, float]]:
    """The points of the first curve."""
    path = re.search(r'<path d="M([^"]*)" class="line c0"', svg)
    assert path is not None
    return [(float(x), float(y)) for x, y in (one.split() for one in path.group(1).split("L"))]


def test_a_curve_falls_from_left_to_right_within_the_chart() -> None:
    points = drawn(curve_chart([DrawnCurve("a", [0, 50, 100], [4.0, 2.0, 1.0])], "updates", "val/loss"))
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert [y for _, y in points] == sorted(y for _, y in points)
    assert all(0 < x < WIDTH for x, _ in points)
    assert points[1][1] - points[0][1] == pytest.approx(2 * (points[2][1] - points[1][1]), abs=0.2)


def test_many_points_and_curves_are_thinned_and_no_spike_is_lost() -> None:
    values = [1.0] * 100_000
    values[77_777] = 9.0
    curves = [DrawnCurve(f"seed {i}", range(100_000), values) for i in range(MOST_CURVES + 5)]
    svg = curve_chart(curves, "updates", "loss")
    assert len(drawn(svg)) <= POINTS + 2
    assert min(y for _, y in drawn(svg)) < max(y for _, y in drawn(svg)) - 150
    assert svg.count('class="line c0"') <= 2 * MOST_CURVES
    assert len(svg) < 600_000


def test_what_is_not_finite_is_left_out() -> None:
    nan, inf = float("nan"), float("inf")
    assert len(drawn(curve_chart([DrawnCurve("a", [0, 1, 2, 3], [nan, 2.0, inf, 1.0])], "x", "y"))) == 2
    assert curve_chart([DrawnCurve("a", [0, 1], [nan, inf])], "x", "y") == ""
    assert curve_chart([], "x", "y") == ""
    assert "<circle" in curve_chart([DrawnCurve("a", [5], [2.0])], "x", "y")


@pytest.mark.parametrize(
    ("values", "marks"),
    [
        ([1e-3, 1.0], ["0.001", "0.003", "0.01", "0.03", "0.1", "0.3", "1"]),
        ([5.0, 5.0], ["3", "4", "5", "6", "7"]),
        ([0.0, 10_000.0], ["0", "2,000", "4,000", "6,000", "8,000", "10,000"]),
        ([1e-9, 1e9], ["1e-09", "1e-06", "0.001", "1", "1,000", "1,000,000", "1e+09"]),
    ],
)
def test_an_axis_is_marked_at_round_figures(values: list[float], marks: list[str]) -> None:
    axis = ValueAxis(values, log=values[0] > 0 and values[-1] / values[0] > LOG_FROM)
    assert [words for _, words in axis.ticks()] == marks
    assert all(0 <= at <= 1 for at, _ in axis.ticks())


def test_names_are_text_in_a_legend_of_their_own() -> None:
    curves = [DrawnCurve("<script>&", [0, 1], [1, 2], 0), DrawnCurve("b" * 300, [0, 1], [2, 3], 1)]
    svg = curve_chart(curves, "x", '"><script>')
    root = ElementTree.fromstring(svg)
    assert not [one for one in root.iter() if one.tag.endswith("script")]
    texts = [one.text for one in root.iter() if one.tag.endswith("text")]
    assert "<script>&" in texts
    assert any(one and one.startswith("bbb") and one.endswith("…") and len(one) < 110 for one in texts)


def test_the_map_has_a_mark_for_each_trial_and_a_star_for_the_best() -> None:
    spec = searches.spec()
    records = searches.records(spec, 200)
    winner = best(records, spec)
    assert winner is not None
    svg = map_chart(records, spec, winner.number)
    ElementTree.fromstring(svg)
    finished = sum(one.state == "finished" for one in records)
    assert svg.count("<circle") == finished + 1  # and one in the legend
    assert svg.count('fill="#f2b630"') == 2
    assert "out of memory" in svg
    assert len(svg) < 400_000


def test_without_two_axes_or_a_finished_trial_there_is_no_map() -> None:
    narrow = searches.spec((searches.BATCH, searches.STRATEGY))
    assert map_chart(searches.records(narrow, 20), narrow, None) == ""
    spec = searches.spec()
    assert map_chart([], spec, None) == ""


def test_a_mean_is_drawn_before_a_seed_is_left_out() -> None:
    seeds = [DrawnCurve("seed", [0, 1], [1.0 + i, 1.0], 0, faint=True) for i in range(MOST_CURVES)]
    svg = curve_chart([*seeds, DrawnCurve("mean", [0, 1], [2.0, 1.0], 0, low=[1, 1], high=[3, 1])], "x", "y\x01")
    assert svg.count('class="line c0 faint"') == MOST_CURVES - 1
    assert svg.count('class="line c0"') == svg.count('class="band c0"') == 1
    ElementTree.fromstring(svg)  # whatever a metric is called
