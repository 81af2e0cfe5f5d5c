import json

from streamlit.testing.v1 import AppTest


def script() -> None:
    import plotly.graph_objects as go

    from scalebook.app.shared.components import chart_view, charts

    def figure(last: float) -> go.Figure:
        line = charts.Series("a", [1.0, 2.0], [1.0, last], "#12868c")
        return charts.lines([line], x_title="updates")

    once = figure(0.5)
    chart_view.draw(once, "first", "a curve")
    chart_view.draw(once, "first-again", "a curve")
    chart_view.draw(figure(0.5), "alike", "a curve")
    chart_view.draw(figure(0.25), "other", "a curve")
    chart_view.pick(figure(0.5), "picked", "a curve")


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
