"""The chart of an answer, without a browser."""

import math

import plotly.graph_objects as go
import pytest

from scalebook.app.ask import ratio_chart
from scalebook.app.shared.charts import PALETTE
from scalebook.training.asking import answer_bars
from scalebook.training.asking.answer_rows import AnswerRow, Findings, PlannedRow
from scalebook.training.notebook.claims import Confidence


def ratio(value: float, no_high: bool = False) -> Confidence:
    return Confidence(math.log(value), math.log(value), 0.05, 8, 3, logs=True, no_high=no_high)


FASTER, SLOWER, SAMPLES = ratio(0.5), ratio(1.5, no_high=True), ratio(1.2)
FINDINGS = Findings(
    "Will it?",
    "Yes.",
    rows=[
        AnswerRow("one", "one process"),
        AnswerRow("ddp", "DDP × 2", ratios={"seconds": FASTER, "samples": ratio(1.0)}),
        AnswerRow("async", "async × 2", ratios={"seconds": SLOWER}),
        AnswerRow("many", "async × 8", kind="simulated", ratios={"samples": SAMPLES, "seconds": ratio(0.1)}),
        AnswerRow("waits", "async × 4"),
    ],
    planned=[PlannedRow("DDP × 8", 8, 0.16, 0.25)],
)


def drawn(findings: Findings = FINDINGS) -> go.Figure:
    figure = ratio_chart.ratios(findings, dark=False)
    assert figure is not None
    return figure


def test_each_side_is_at_its_ratio_with_its_interval_and_says_what_it_is() -> None:
    """Of a simulated side the samples; of one whose runs missed the target an arrow, without an end."""
    measured, simulated, planned = drawn().data
    assert list(measured.x) == pytest.approx([0.5, 1.5])
    assert list(measured.y) == [0, -1]
    assert measured.error_x.array[0] == pytest.approx(FASTER.high - 0.5)
    assert measured.error_x.arrayminus[0] == pytest.approx(0.5 - FASTER.low)
    assert (measured.error_x.array[1], measured.marker.symbol[1]) == (None, "triangle-right")
    assert (list(simulated.x), list(simulated.y)) == ([pytest.approx(1.2)], [-2])
    assert list(planned.x) == [pytest.approx(0.2)], "between both ends, on a logarithmic axis"
    assert (planned.error_x.array[0], planned.error_x.arrayminus[0]) == (pytest.approx(0.05), pytest.approx(0.04))
    assert [trace.marker.color for trace in drawn().data] == [PALETTE[0], PALETTE[2], PALETTE[1]]
    said = [one.text for one in drawn().layout.annotations]
    assert said[1:] == [
        "<b>async × 2</b><br>measured, time: more than 1.50x",
        f"<b>async × 8</b><br>simulated, samples: 1.20x ({SAMPLES.low:.2f} to {SAMPLES.high:.2f})",
        "<b>DDP × 8</b><br>extrapolated, time per sample: 0.16x to 0.25x",
    ]


def test_the_axis_is_logarithmic_with_a_line_at_one_and_few_marks() -> None:
    layout = drawn().layout
    assert layout.xaxis.type == "log"
    assert [(line.x0, line.x1) for line in layout.shapes] == [(1, 1)] * 4, "beside each mark"
    assert 1 in layout.xaxis.tickvals
    assert len(layout.xaxis.tickvals) <= answer_bars.MOST_TICKS + 1


def test_words_of_the_notebook_are_no_html() -> None:
    rows = [FINDINGS.rows[0], AnswerRow("x", "<img src=x>", ratios={"seconds": FASTER})]
    (one,) = drawn(Findings("", "", rows=rows)).layout.annotations
    assert one.text.startswith("<b>&lt;img src=x&gt;</b>")


@pytest.mark.parametrize(
    ("figure", "goal", "side"), [("seconds", "max", "left"), ("best", "max", "right"), ("best", "min", "left")]
)
def test_it_says_which_side_is_better(figure: str, goal: str, side: str) -> None:
    findings = Findings("", "", rows=[AnswerRow("b", "b"), AnswerRow("a", "a", ratios={figure: FASTER})], figure=figure)  # type: ignore[arg-type,dict-item]
    assert f"{side} of the line is better" in ratio_chart.legend(findings, goal)  # type: ignore[arg-type]


def test_nothing_is_drawn_of_what_has_no_ratio() -> None:
    """Nor on a logarithmic axis of what is not above 0: a best value may be negative."""
    assert ratio_chart.ratios(Findings("", "", rows=[FINDINGS.rows[0], FINDINGS.rows[-1]]), dark=True) is None
    below = Confidence(-0.5, -0.5, 0.1, 8, 3)
    findings = Findings("", "", rows=[FINDINGS.rows[0], AnswerRow("x", "x", ratios={"best": below})], figure="best")
    assert ratio_chart.ratios(findings, dark=True) is None
