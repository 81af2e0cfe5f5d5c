import json
import re

import pytest
from streamlit.testing.v1 import AppTest

from scalebook.app.shared import charts
from scalebook.app.shared.charts import Series


def test_a_legend_does_not_lie_over_the_title() -> None:
    two = [Series("GPU 0", [1, 2], [3, 4], "#12868c"), Series("GPU 1", [1, 2], [3, 5], "#dd7a1b")]
    legend = charts.lines(two, x_title="seconds", title="GPU busy, %").layout.legend
    assert (legend.yref, legend.y, legend.yanchor) == ("container", 0, "bottom")
    assert charts.lines(two, x_title="seconds").layout.legend.y is None  # above, as the template has it


def test_curves_of_one_name_share_the_legend() -> None:
    seeds = [Series("async", [1, 2], [3, 4], "#12868c", faint=True), Series("async", [1, 2], [3, 5], "#12868c")]
    drawn = charts.lines([*seeds, Series("ddp", [1, 2], [3, 4], "#dd7a1b")], x_title="updates", target=2.0)
    assert [trace.showlegend for trace in drawn.data] == [False, True, True, False]
    assert [trace.legendgroup for trace in drawn.data] == ["async", "async", "ddp", None]
    target = drawn.data[-1]  # a trace: the axis makes room for it, as it does not for a shape
    assert (list(target.x), list(target.y), target.text[0]) == ([1, 2], [2.0, 2.0], "target 2")
    assert drawn.layout.xaxis.title.text == "updates"


def test_one_point_is_seen() -> None:
    assert charts.lines([Series("a", [1], [2], "#12868c")], x_title="updates").data[0].mode == "lines+markers"


def test_a_band_encloses_its_curve() -> None:
    band = charts.lines(
        [Series("a", [1, 2], [2, 3], "#12868c", low=[1, 2], high=[3, 4])], x_title="updates", log_y=True
    )
    assert list(band.data[0].y) == [3, 4, 2, 1]
    assert band.data[0].fillcolor == "rgba(18,134,140,0.14)"
    assert band.layout.yaxis.type == "log"


@pytest.mark.parametrize("dark", [False, True])
def test_the_template_lies_on_any_ground(dark: bool) -> None:
    assert charts.template(dark).layout.paper_bgcolor == "rgba(0,0,0,0)"
    assert charts.template(dark) is charts.template(dark)


def test_every_run_is_told_of_with_its_unit() -> None:
    drawn = charts.lines(
        [Series("a", [1, 2], [2, 3], "#12868c"), Series("b", [1.5], [2], "#dd7a1b")], x_title="seconds"
    )
    assert drawn.layout.hoverdistance == -1
    assert {one.hovertemplate for one in drawn.data} == {"%{y:.5g} at %{x:,.5~g} s"}


def test_a_smoothed_curve_has_what_was_logged_faint_behind_it() -> None:
    seed = Series("a", [1, 2], [0, 1], "#12868c", faint=True)
    mean = Series("a", [1, 2], [0, 1], "#12868c")
    drawn = charts.lines([seed, mean], x_title="updates", smoothing=0.5).data
    assert [list(trace.y) for trace in drawn] == [[0, 1], [0, 1], [0, pytest.approx(2 / 3)]]
    assert [trace.opacity for trace in drawn] == [0.38, 0.38, 1.0]
    assert [trace.hoverinfo for trace in drawn] == ["skip", "skip", None]


def test_the_split_of_time_is_drawn_as_told() -> None:
    drawn = charts.time_split([("all <b>", {"compute": 0.7, "wait": 0.05, "data": 0.0})])
    assert re.findall(r"width:([\d.]+)%;[^>]*title=\"(\w+) ([\d.]+)%\">([^<]*)<", drawn) == [
        ("70.00", "compute", "70.0", "70%"), ("5.00", "wait", "5.0", ""),
    ]  # fmt: skip
    assert "all &lt;b&gt;" in drawn
    assert re.findall(r"</i>(\w+)</span>", drawn) == ["compute", "wait", "communicate", "data"]


def script() -> None:
    import plotly.graph_objects as go

    from scalebook.app.shared import charts

    def figure(last: float) -> go.Figure:
        line = charts.Series("a", [1.0, 2.0], [1.0, last], "#12868c")
        return charts.lines([line], x_title="updates")

    once = figure(0.5)
    charts.draw(once, "first", "a curve")
    charts.draw(once, "first-again", "a curve")
    charts.draw(figure(0.5), "alike", "a curve")
    charts.draw(figure(0.25), "other", "a curve")
    charts.pick(figure(0.5), "picked", "a curve")


def test_a_figure_says_which_data_it_has_so_that_it_is_drawn_once() -> None:
    app = AppTest.from_function(script, default_timeout=60).run()
    assert not app.exception
    layouts = [json.loads(chart.proto.spec)["layout"] for chart in app.get("plotly_chart")]
    first, again, alike, other, _ = (layout["datarevision"] for layout in layouts)
    assert first == again == alike
    assert first != other
    assert "clickmode" not in layouts[0]
    assert "template" not in layouts[0]
    assert (layouts[0]["xaxis"]["showline"], layouts[0]["xaxis"]["title"]["text"]) == (True, "updates")
    assert layouts[0]["xaxis"]["title"]["standoff"] == 8
    assert layouts[0]["legend"]["orientation"] == "h"
    assert (layouts[4]["clickmode"], layouts[4]["dragmode"]) == ("event+select", "pan")
