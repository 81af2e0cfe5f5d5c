from itertools import pairwise

import pytest

from scalebook.app.search import trial_style
from scalebook.training.search.map.landscape import KINDS
from scalebook.training.search.map.shades import shades


def test_every_kind_has_a_colour_and_a_marker_of_its_own() -> None:
    assert tuple(trial_style.LOOKS) == KINDS
    for dark in (False, True):
        assert len({look.colour(dark) for look in trial_style.LOOKS.values()}) == len(KINDS)
    assert len({look.symbol for look in trial_style.LOOKS.values()}) == len(KINDS)


@pytest.mark.parametrize("dark", [False, True])
def test_shades_are_told_apart_by_lightness_alone(dark: bool) -> None:
    lightness = [_lightness(trial_style.shade(i / 20, dark)) for i in range(21)]
    steps = [after - before for before, after in pairwise(lightness)]
    assert all(step > 0 for step in steps) if dark else all(step < 0 for step in steps)
    assert abs(lightness[-1] - lightness[0]) > 0.5


def _lightness(colour: str) -> float:
    """Relative luminance (WCAG), then its cube root: about what an eye without colours sees."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return float((0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]) ** (1 / 3))


def test_the_colour_bar_says_values() -> None:
    known = shades([1.0, 2.0, 3.0], lower=True)
    assert known is not None
    bar = trial_style.colour_axis(known, "val/loss", dark=False)["colorbar"]
    assert isinstance(bar, dict)
    assert bar["ticktext"] == ["3", "2.5", "2", "1.5", "1"]


def test_a_logarithmic_axis_has_few_and_plain_ticks() -> None:
    axis = trial_style.log_axis(0.09, 3.0)
    assert axis["ticktext"] == ["0.1", "0.2", "0.5", "1", "2"]
    assert trial_style.log_axis(1e-5, 1e5)["ticktext"] == ["1e-05", "0.0001", "0.001", "0.01", "0.1", "1", "10", "100",
                                                     "1000", "10000", "100000"]  # fmt: skip
