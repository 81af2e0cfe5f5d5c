import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
from PIL import Image

from scalebook.training.search.map.map_pictures import map_figure
from scalebook.training.tracking.drawing import as_svg, save
from tests.app import searches


def test_the_map_is_drawn_with_a_panel_for_each_category(tmp_path: Path) -> None:
    found = searches.spec()
    drawn, path = map_figure(searches.records(found, 150), found), tmp_path / "map.png"
    assert drawn is not None
    save(drawn, path)
    with Image.open(path) as picture:
        pixels = np.asarray(picture.convert("RGB")).reshape(-1, 3).astype(int)
        width, height = picture.size
    assert width > 1200
    assert height > 800
    for colour in ((178, 58, 134), (194, 102, 12), (242, 182, 48)):  # diverged, out of memory, the star
        assert (np.abs(pixels - np.array(colour)).max(axis=1) < 12).sum() > 20, colour


def test_the_map_has_a_mark_for_each_trial_and_a_star_for_the_best() -> None:
    spec = searches.spec()
    records = searches.records(spec, 200)
    drawn = map_figure(records, spec)
    assert drawn is not None
    svg = as_svg(drawn, "a map")
    ElementTree.fromstring(svg)
    finished = sum(one.state == "finished" for one in records)
    assert svg.count("stroke: #ffffff; stroke-width: 0.8") == finished + 1  # and one in the legend
    assert svg.count("fill: #f2b630") == 2
    assert "out of memory" in svg
    assert len(svg) < 400_000


def test_without_two_axes_or_a_finished_trial_there_is_no_map() -> None:
    for dimensions in ((searches.BATCH, searches.STRATEGY), (searches.RATE, searches.STRATEGY)):
        narrow = searches.spec(dimensions)
        assert map_figure(searches.records(narrow, 20), narrow) is None
    assert map_figure([], searches.spec()) is None
