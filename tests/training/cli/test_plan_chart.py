"""What the planner's pictures show."""

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.cli.plan_chart import check_figure, target_figure, throughput_figure
from scalebook.training.tracking.drawing import HUES, as_svg
from tests.training.planner.test_answer_words import CURVE
from tests.training.planner.test_time_to_target import FOUND


def words(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter() if element.tag.endswith("text")]


def test_samples_against_workers_with_the_ideal_and_the_knee() -> None:
    svg = as_svg(throughput_figure([CURVE, replace(CURVE, rule="sync", knee=None)]), "")
    for hue in HUES[:2]:
        assert svg.count(f"fill: none; stroke: {hue}; stroke-width: 2") == 2  # the curve, and its mark in the legend
    assert svg.count(f"fill: {HUES[0]}") > 0  # the knee
    assert svg.count(f"fill: {HUES[1]}") == 0
    for text in ("1", "8", "200", "workers", "samples/s", "ideal", "async, 2 shards, 10 Gbit/s Ethernet"):
        assert text in words(svg)


def test_the_ground_is_coloured_where_rates_are_extrapolated() -> None:
    here = replace(CURVE, measured=2)
    assert "extrapolated" in words(as_svg(throughput_figure([here]), ""))
    for plain in (CURVE, replace(CURVE, measured=8)):
        assert "extrapolated" not in words(as_svg(throughput_figure([plain]), ""))


def test_three_panels() -> None:
    figure = target_figure(FOUND)
    assert figure is not None
    svg = as_svg(figure, "")
    assert {"updates to the target", "seconds per update", "seconds to the target"} <= {*words(svg)}
    for hue in HUES[:3]:
        assert svg.count(f'style="fill: {hue}; stroke: {hue}"') == 3  # a dot a number of workers that was reached


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    check_figure(tmp_path / "f.svg")
    for wrong in (tmp_path / "f.jpg", tmp_path / "none" / "f.svg"):
        with pytest.raises(ConfigError, match="--figure"):
            check_figure(wrong)
