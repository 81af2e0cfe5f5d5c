import sys
from pathlib import Path

import pytest

from benchmarks import engine_extras
from benchmarks.engine_systems import GOALS, SYSTEMS, choose
from benchmarks.engine_task import Measured


def names(only: list[str], everything: bool = False) -> list[str]:
    return [system.name for system in choose(SYSTEMS, only, everything)]


def test_names_are_unique_and_every_goal_names_rows() -> None:
    known = [system.name for system in SYSTEMS]
    assert len(set(known)) == len(known)
    assert {name for goal in GOALS for name in (goal.above, goal.below)} <= set(known)


def test_a_whole_name_selects_one_row_and_a_part_of_it_several() -> None:
    assert names(["AsyncPS x 2"]) == ["AsyncPS x 2"]
    assert names(["hogwild", "one process"]) == ["one process", "hogwild x 2"]
    assert set(names(["Adam"])) == {"one process, Adam", "AsyncPS x 1, Adam", "AsyncPS x 2, Adam"}


def test_rows_beyond_the_default_ones_are_measured_only_when_asked_for() -> None:
    assert set(names([])) < set(names([], everything=True)) == {system.name for system in SYSTEMS}


def test_a_name_that_fits_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="--only 'hogwyld': no row"):
        names(["hogwyld"])


@pytest.mark.parametrize("option", ["jax=/usr/bin/python", "ray", "ray=", "ray=/nowhere/python"])
def test_an_extra_that_cannot_be_is_refused_with_a_remedy(option: str) -> None:
    with pytest.raises(ValueError, match=r"--extra .*: (write NAME=PYTHON|.*README\.md says how)"):
        engine_extras.parse(option)


def test_an_extra_is_a_program_whose_last_line_is_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "toy_ps.py"
    script.write_text(
        "import sys\nassert sys.argv[1] == '--row' and sys.argv[3:] == ['--seconds', '0.5'], sys.argv\n"
        'print(\'noise\')\nprint(\'{"updates_per_s": 3, "gradients_per_s": 6, "cpu_ms": 2.5, "staleness": NaN}\')\n'
    )
    monkeypatch.setitem(engine_extras.SCRIPTS, "toy", script)
    alone, served = engine_extras.parse(f"toy={sys.executable}")
    assert (alone.name, served.name) == ("toy: one process", "toy: parameter server x 2")
    found = served.measure(0.5)
    assert found[:3] == Measured(3, 6, 2.5)[:3]
    assert found.staleness != found.staleness


def test_an_extra_that_fails_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "toy_ps.py"
    script.write_text("raise SystemExit('no such actor')")
    monkeypatch.setitem(engine_extras.SCRIPTS, "toy", script)
    with pytest.raises(RuntimeError, match="no such actor"):
        engine_extras.parse(f"toy={sys.executable}")[0].measure(0.5)
