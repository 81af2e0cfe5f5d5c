"""Curves as SVG: what is drawn, and how much of it."""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path

import pytest

from scalebook.training.tracking.drawing import (
    HUES,
    LOG_FROM,
    MOST_CURVES,
    POINTS,
    STYLE,
    WIDTH,
    DrawnCurve,
    as_svg,
    curve_figure,
    figure,
    label,
    log_axis,
    save,
)


def svg(curves: Sequence[DrawnCurve], x: str = "x", y: str = "y", target: float | None = None) -> str:
    drawn = curve_figure(curves, x, y, target)
    assert drawn is not None
    return as_svg(drawn, f"{y} against {x}")


def lines(text: str, hue: int = 0) -> list[list[tuple[float, float]]]:
    """The points of each curve of that colour, two units wide; the legend's marks have two points."""
    paths = re.findall(rf'<path d="([^"]*)"[^>]*stroke: {HUES[hue]}; stroke-width: 2', text)
    return [[(float(x), float(y)) for x, y in re.findall(r"[ML] (\S+) (\S+)", path)] for path in paths]


def words(text: str) -> list[str]:
    return [one.text or "" for one in ElementTree.fromstring(text).iter() if one.tag.endswith("text")]


def test_a_curve_falls_from_left_to_right_within_the_chart() -> None:
    (points,) = lines(svg([DrawnCurve("a", [0, 50, 100], [4.0, 2.0, 1.0])], "updates", "val/loss"))
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert [y for _, y in points] == sorted(y for _, y in points)
    assert all(0 < x < WIDTH for x, _ in points)
    assert points[1][1] - points[0][1] == pytest.approx(2 * (points[2][1] - points[1][1]), abs=0.2)


def test_many_points_and_curves_are_thinned_and_no_spike_is_lost() -> None:
    values = [1.0] * 20_000
    values[17_777] = 9.0
    text = svg([DrawnCurve(f"seed {i}", range(20_000), values) for i in range(MOST_CURVES + 5)])
    assert len(lines(text)[0]) <= POINTS + 2
    assert min(y for _, y in lines(text)[0]) < max(y for _, y in lines(text)[0]) - 150
    assert len(lines(text)) == 2 * MOST_CURVES  # each with its mark
    assert len(text) < 600_000


def test_what_is_not_finite_is_left_out() -> None:
    nan, inf = float("nan"), float("inf")
    assert len(lines(svg([DrawnCurve("a", [0, 1, 2, 3], [nan, 2.0, inf, 1.0])], target=nan))[0]) == 2
    assert curve_figure([DrawnCurve("a", [0, 1], [nan, inf])], "x", "y") is None
    assert curve_figure([], "x", "y") is None
    assert "<use" in svg([DrawnCurve("a", [5], [2.0])])


@pytest.mark.parametrize(
    ("values", "marks"),
    [
        ([1e-3, 1.0], ["0.001", "0.003", "0.01", "0.03", "0.1", "0.3", "1"]),
        ([5.0, 5.0], ["4.8", "4.9", "5", "5.1", "5.2"]),
        ([0.0, 10_000.0], ["0", "2,000", "4,000", "6,000", "8,000", "10,000"]),
        ([1e-8, 1e8], ["1e-08", "1e-06", "0.0001", "0.01", "1", "100", "10,000", "1,000,000", "100,000,000"]),
    ],
)
def test_an_axis_is_marked_at_round_figures(values: list[float], marks: list[str]) -> None:
    drawn, (axes,) = figure()
    axes.plot(values)
    if values[0] > 0 and values[-1] / values[0] > LOG_FROM:
        log_axis(axes, "y", values[0] / 1.1, values[-1] * 1.1)
    as_svg(drawn, "")
    low, high = axes.get_ylim()
    assert [label(at) for at in axes.get_yticks() if low <= at <= high] == marks


def test_names_are_text_in_a_legend_of_their_own() -> None:
    curves = [
        DrawnCurve("<script>&", [0, 1], [1, 2], 0),
        DrawnCurve("b" * 300, [0, 1], [2, 3], 1),
        DrawnCurve("_$a$_$b$", [0, 1], [2, 3], 2),
    ]
    text = svg(curves, "x", '"><script>')
    assert not [one for one in ElementTree.fromstring(text).iter() if one.tag.endswith("script")]
    assert "<script>&" in words(text)
    assert "_$a$_$b$" in words(text)
    assert any(one.startswith("bbb") and one.endswith("…") and len(one) < 110 for one in words(text))


def test_a_target_is_a_line_with_its_value() -> None:
    assert "target 2.5" in words(svg([DrawnCurve("a", [0, 1], [3.0, 2.0])], target=2.5))


def test_a_mean_is_drawn_before_a_seed_is_left_out() -> None:
    seeds = [DrawnCurve("seed", [0, 1], [1.0 + i, 1.0], 0, faint=True) for i in range(MOST_CURVES)]
    text = svg([*seeds, DrawnCurve("mean", [0, 1], [2.0, 1.0], 0, low=[1, 1], high=[3, 1])], "x", "y\x01本")
    assert text.count(f"stroke: {HUES[0]}; stroke-opacity: 0.4") == MOST_CURVES - 1
    assert len(lines(text)) == text.count("fill-opacity: 0.14") == 1
    assert "y\\x01本" in words(text)  # whatever a metric is called


def test_equal_figures_are_equal_to_the_byte_and_may_stand_on_one_page(tmp_path: Path) -> None:
    """No style of theirs is the page's, and a name within them means the same in each."""
    one, other = (svg([DrawnCurve("a", [0, 1], [3.0, high])]) for high in (2.0, 1.0))
    assert one == svg([DrawnCurve("a", [0, 1], [3.0, 2.0])])
    assert "<style" not in one
    assert one.count("<svg") == one.count("aria-label") == 1
    same = set(re.findall(r'id="([^"]*)"', one)) & set(re.findall(r'id="([^"]*)"', other))
    assert all(re.fullmatch(r"[mp][0-9a-f]{10}", name) for name in same), "of clips and marks, by their content"


def test_a_file_has_the_colours_of_both_grounds(tmp_path: Path) -> None:
    drawn = curve_figure([DrawnCurve("a", [0, 1], [3.0, 2.0])], "x", "y")
    assert drawn is not None
    save(drawn, tmp_path / "f.svg", "y against x")
    root = ElementTree.fromstring((tmp_path / "f.svg").read_text())
    assert root.get("aria-label") == "y against x"
    assert "prefers-color-scheme: dark" in (root[0].text or "")
    dark = re.findall(r"(?:fill|stroke): #\w+(?=\")", STYLE.read_text())
    assert {"fill: #66716f", "stroke: #e6e8e5", "stroke: #b9c0bd"} <= set(dark)
    for colour in ("fill: #66716f", "stroke: #e6e8e5", "stroke: #b9c0bd"):
        assert colour in (tmp_path / "f.svg").read_text().partition("</style>")[2]
    save(drawn, tmp_path / "f.png")
    assert (tmp_path / "f.png").read_bytes()[:4] == b"\x89PNG"
