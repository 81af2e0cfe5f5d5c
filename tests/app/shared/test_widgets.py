import pytest

from scalebook.app.shared.widgets import number_text, read_number


@pytest.mark.parametrize(
    ("text", "whole", "told"),
    [
        ("", True, None),
        ("  ", False, None),
        ("15", True, 15),
        (" -1 ", True, -1),
        ("1e9", True, 1_000_000_000),
        ("1e9", False, 1e9),
        ("2.0", True, 2),
        ("1.5", True, 1.5),
        (".5", False, 0.5),
        ("1e-3", False, 0.001),
        ("9007199254740993", True, 9007199254740993),
        ("1,5", True, "1,5"),
        ("1,5", False, "1,5"),
        ("1 000", True, "1 000"),
        ("1_000", True, "1_000"),
        ("abc", False, "abc"),
        ("nan", False, "nan"),
        ("1e999", False, "1e999"),
        ("0x10", True, "0x10"),
        ("٣", True, "٣"),
    ],
)
def test_a_number_is_read_as_typed_or_stays_the_text_that_it_is(text: str, whole: bool, told: object) -> None:
    found = read_number(text, whole=whole)
    assert found == told
    assert type(found) is type(told)


@pytest.mark.parametrize("value", [0, 1, -3, 2**60, 0.1, 1e-05, 0.30000000000000004, 123456789.125, 1e300])
def test_what_is_shown_is_read_back(value: float) -> None:
    assert read_number(number_text(value), whole=isinstance(value, int)) == value


def test_what_is_no_number_is_shown_as_it_is() -> None:
    assert [number_text(one) for one in (None, "many", True, float("inf"))] == ["", "many", "True", "inf"]
