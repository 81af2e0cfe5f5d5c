from pathlib import Path

import pytest

from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments.command_line import CommandLine
from scalebook.training.planner.tuning import rates
from scalebook.training.planner.tuning.rates import HEIGHT, plot


def test_a_curve_with_its_marks_and_what_explodes_cut_off() -> None:
    rates = [10.0 ** (i / 10 - 4) for i in range(41)]
    losses = [2.0 if i < 10 else 1.0 if i < 30 else 50.0 for i in range(41)]
    lines = plot(rates, losses, {rates[10]: "v", rates[29]: "|"})
    assert len(lines) == HEIGHT + 2
    assert all(len(line) <= 80 for line in lines)
    assert "^" in lines[0]
    assert lines[HEIGHT - 1].startswith("       1 |")
    axis = lines[HEIGHT]
    assert axis.index("v") < axis.index("|")
    assert lines[-1].split() == ["1.0e-04", "1.0e+00"]


def test_a_flat_curve() -> None:
    lines = plot([0.1, 1.0], [2.0, 2.0], {})
    assert lines[HEIGHT - 1].count("*") == 2


@pytest.mark.parametrize(
    ("options", "edges", "expected"),
    [
        ({}, ["lowest", ""], [(1e-5, 10), (1e-8, 10)]),
        ({}, ["highest", "highest", "highest"], [(1e-5, 10), (1e-5, 1e4), (1e-5, 1e7)]),
        ({"--from": "1e-3"}, ["lowest"], [(1e-3, 10)]),
        ({"--from": "1e-3"}, ["highest", ""], [(1e-3, 10), (1e-3, 1e4)]),
    ],
)
def test_a_range_is_widened_where_the_user_has_set_no_end(
    options: dict[str, str | None],
    edges: list[str],
    expected: list[tuple[float, float]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tested: list[tuple[float, float]] = []

    def run(_: object, config: tuple[float, float], *more: object) -> tuple[int, str]:
        tested.append(config)
        return 0, edges[len(tested) - 1]

    line = CommandLine({}, options)
    monkeypatch.setattr(rates, "prepared", lambda *_: (Workspace(tmp_path), None, line))
    monkeypatch.setattr(rates, "range_test", lambda _, lowest, highest, updates: (lowest, highest))
    monkeypatch.setattr(rates, "run", run)
    assert rates.main([]) == 0
    assert tested == [pytest.approx(one) for one in expected]
