import math

import pytest

from scalebook.app.runs.table import (
    DIGIT_PX,
    MOST_NAME,
    ROOM_PX,
    cut_in_the_middle,
    fitting,
    number_column,
    number_shown,
)


@pytest.mark.parametrize(
    ("format", "value", "text"),
    [("%.5g", 0.000181973, "0.00018197"), ("%.12g", 3.82444e-05, "0.0000382444"), ("%.12g", 1e-7, "1e-07"),
     ("%.5g", 123456.7, "123460"), ("%d", 1234567890.0, "1234567890"), ("%.4e", 1.797e300, "1.7970e+300")],
)  # fmt: skip
def test_a_figure_is_as_long_as_in_the_browser(format: str, value: float, text: str) -> None:
    assert number_shown(format, value) == text


@pytest.mark.parametrize(
    ("values", "format"),
    [([1.0, 64.0], "%d"), ([0.5, 2.25], "%.5g"), ([0.5, 1e-6], "%.4e"), ([0.5, 0.0], "%.5g"), ([1.5e8, 1.5], "%.4e"),
     ([], "%d")],
)  # fmt: skip
def test_a_format_holds_the_digits(values: list[float], format: str) -> None:
    assert fitting(values) == format


@pytest.mark.parametrize("value", [1234567890.0, -3.82444e-05, 0.0001819731234, 1.7e12, 123456.789])
def test_no_figure_is_wider_than_its_column(value: float) -> None:
    for format in ("", "%.4f", "%.0f", "%.12g"):
        config, values = number_column("lr", [0.5, None, value], format=format)
        assert values == [0.5, None, value]
        assert config["width"] >= len(number_shown(config["type_config"]["format"], value)) * DIGIT_PX + ROOM_PX - 1


def test_fixed_places_that_would_say_nothing_are_not_kept() -> None:
    assert number_column("Best", [2.0, 1.5], format="%.4f")[0]["type_config"]["format"] == "%.4f"
    assert number_column("Best", [2.0, 1e-6], format="%.4f")[0]["type_config"]["format"] == "%.4e"


def test_what_is_no_number_is_said() -> None:
    config, values = number_column("score", [0.25, math.nan, None, math.inf, -math.inf])
    assert values == ["0.25", "NaN", "", "∞", "−∞"]
    assert (config["type_config"]["type"], config["alignment"]) == ("text", "right")


def test_names_that_differ_at_their_ends_differ_where_they_are_cut() -> None:
    names = [f"smallcnn-single-more-workers-{side} · seed 1003" for side in ("one", "ddp-2", "async-2")]
    cut = [cut_in_the_middle(name) for name in names]
    assert cut[1:] == ["smallcn…s-ddp-2 · seed 1003", "smallcn…async-2 · seed 1003"]
    assert {len(name) for name in cut} == {MOST_NAME}
    assert cut_in_the_middle("pixelcnn-async-16 · seed 1") == "pixelcnn-async-16 · seed 1"
