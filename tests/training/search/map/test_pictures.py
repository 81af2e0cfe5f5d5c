from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from scalebook.training.search.map.pictures import map_picture
from tests.app import searches


def test_the_map_is_drawn_with_a_panel_for_each_category(tmp_path: Path) -> None:
    found = searches.spec()
    path = map_picture(searches.records(found, 150), found, tmp_path / "figures" / "map.png", "A search")
    with Image.open(path) as picture:
        pixels = np.asarray(picture.convert("RGB")).reshape(-1, 3).astype(int)
        width, height = picture.size
    assert width > 1200
    assert height > 800
    for colour in ((178, 58, 134), (194, 102, 12), (242, 182, 48)):  # diverged, out of memory, the star
        assert (np.abs(pixels - np.array(colour)).max(axis=1) < 12).sum() > 20, colour


def test_there_is_no_map_without_two_axes_or_a_finished_trial(tmp_path: Path) -> None:
    one = searches.spec((searches.RATE, searches.STRATEGY))
    with pytest.raises(ValueError, match="two dimensions"):
        map_picture(searches.records(one, 20), one, tmp_path / "map.png")
    with pytest.raises(ValueError, match="a finished trial"):
        map_picture([], searches.spec(), tmp_path / "map.png")
    assert not (tmp_path / "map.png").exists()
