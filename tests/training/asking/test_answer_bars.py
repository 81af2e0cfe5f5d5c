"""The chart of an answer, as exports have it."""

import math

from scalebook.training.asking.answer_bars import better_side, picture, spoken
from scalebook.training.asking.answer_rows import AnswerRow, Findings, PlannedRow
from scalebook.training.notebook.claims import Confidence
from scalebook.training.tracking.drawing import as_svg


def ratio(value: float, no_high: bool = False) -> Confidence:
    return Confidence(math.log(value), math.log(value), 0.05, 8, 3, logs=True, no_high=no_high)


def test_the_picture_says_of_each_side_what_it_is() -> None:
    rows = [
        AnswerRow("one", "one process"),
        AnswerRow("ddp", "DDP × 2", ratios={"seconds": ratio(0.5)}),
        AnswerRow("late", "<b> $late$", ratios={"seconds": ratio(1.5, no_high=True)}),
        AnswerRow("many", "async × 8", kind="simulated", ratios={"samples": ratio(1.2)}),
    ]
    findings = Findings("", "", rows=rows, planned=[PlannedRow("DDP × 8", 8, 0.16, 0.25)])
    drawn = picture(findings, "min")
    assert drawn is not None
    svg = as_svg(drawn, spoken(findings))
    for words in (
        "DDP × 2",
        "measured, time: 0.50x (0.45 to 0.56)",
        "measured, time: more than 1.50x",
        "simulated, samples: 1.20x",
        "extrapolated, time per sample: 0.16x to 0.25x",
        "multiple of one process (left of the line is better)",
        "&lt;b&gt; $late$",
        'aria-label="Each bar is a multiple of one process: DDP × 2 0.50x (0.45 to 0.56); &lt;b&gt;',
    ):
        assert words in svg, words
    assert "<b>" not in svg


def test_nothing_is_drawn_of_what_has_no_ratio_or_is_not_above_0() -> None:
    rows = [AnswerRow("one", "one process"), AnswerRow("ddp", "DDP × 2")]
    assert picture(Findings("", "", rows=rows), "min") is None
    below = AnswerRow("b", "b", ratios={"best": Confidence(-0.5, -0.5, 0.1, 8, 3)})
    findings = Findings("", "", rows=[rows[0], below], figure="best", metric="val/acc")
    assert picture(findings, "max") is None
    assert better_side(findings, "max") == "right of the line is better"
