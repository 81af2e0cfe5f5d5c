import pytest

from scalebook.training.base.durations import duration, roughly


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(None, ""), (-0.01, "0.0 s"), (0.42, "0.4 s"), (7.6, "7.6 s"), (9.96, "10 s"), (59.4, "59 s"),
     (59.6, "1 min 00 s"), (99, "1 min 39 s"), (125, "2 min 05 s"), (185, "3 min 05 s"), (4810, "1 h 20 min"),
     (7800, "2 h 10 min")],
)  # fmt: skip
def test_what_something_took(seconds: float | None, said: str) -> None:
    assert duration(seconds) == said


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.2, "1 s"), (40.4, "40 s"), (89, "89 s"), (200, "3 min"), (3600 * 2.2, "2 h")]
)
def test_what_something_may_take(seconds: float, said: str) -> None:
    assert roughly(seconds) == said
