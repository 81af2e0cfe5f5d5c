import math
from dataclasses import replace

import pytest

from scalebook.app.plan import answer_charts
from tests.app.plan.planned import answer, reached


def test_samples_have_the_ideal_line_the_range_and_the_knees() -> None:
    found = answer()
    figure = answer_charts.samples(found, dark=False)
    by_name = {trace.name: trace for trace in figure.data if trace.name}
    assert list(by_name["async"].x) == [1, 2, 4, 8, 16, 32, 64]
    assert list(by_name["ideal"].y) == [found.curves[0].one_per_s * count for count in (1, 2, 4, 8, 16, 32, 64)]
    knees = [trace for trace in figure.data if trace.name == "knee"]
    assert [knee.x[0] for knee in knees] == [curve.knee.workers for curve in found.curves if curve.knee]
    knee = found.curves[0].knee
    assert knee is not None
    assert (knees[0].error_x.arrayminus[0], knees[0].error_x.array[0]) == pytest.approx(
        (knee.workers - knee.low, knee.high - knee.workers)
    )
    bands = [trace for trace in figure.data if trace.fill == "toself"]
    assert max(bands[0].y) == pytest.approx(400 / found.curves[0].reliability.updates_per_s.lowest, rel=1e-3)
    assert (figure.layout.xaxis.type, figure.layout.yaxis.type) == ("log", "log")


def test_more_workers_than_were_measured_at_once_are_shaded() -> None:
    found = answer()
    assert not answer_charts.samples(found, dark=False).layout.shapes, "a profile that a person wrote"
    here = replace(found, curves=[replace(curve, measured=2) for curve in found.curves])
    figure = answer_charts.samples(here, dark=False)
    (shade,) = figure.layout.shapes
    assert (shade.x0, shade.x1, shade.fillcolor) == (2, 64, answer_charts.basis_colour("extrapolated"))
    assert {note.text: (note.x, note.font.color) for note in figure.layout.annotations} == {
        basis: (pytest.approx(math.log10(2)), answer_charts.basis_colour(basis))
        for basis in ("measured", "extrapolated")
    }
    all_measured = replace(found, curves=[replace(curve, measured=64) for curve in found.curves])
    assert not answer_charts.samples(all_measured, dark=False).layout.shapes


def test_updates_are_ideal_with_one_gradient_each() -> None:
    found = answer()
    ideal = next(trace for trace in answer_charts.updates(found, dark=True).data if trace.name == "ideal")
    assert ideal.y[0] == pytest.approx(found.curves[0].points[0].updates_per_s)


def test_staleness_has_its_95th_percentile_and_idle_is_a_share() -> None:
    found = answer()
    names = [trace.name for trace in answer_charts.staleness(found, dark=False).data if trace.name]
    assert names == ["async", "sync", "async, p95", "sync, p95"]
    idle = next(trace for trace in answer_charts.idle(found, dark=False).data if trace.name == "sync")
    assert list(idle.y) == [1 - point.compute for point in found.curves[1].points]


def test_the_time_to_a_target_stands_beside_its_two_factors() -> None:
    needed, each, whole = answer_charts.target(reached(), ("updates", "seconds of one", "seconds"), dark=False)
    assert list(needed.data[0].x) == [1, 2], "where all seeds reached it"
    assert list(needed.data[0].y) == [100, 125]
    assert list(each.data[0].y) == pytest.approx([1 / 10, 1 / 19])
    assert list(whole.data[0].y) == pytest.approx([10, 125 / 19])
