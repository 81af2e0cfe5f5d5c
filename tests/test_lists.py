"""Each test is run by one of the Makefile's lists, and by no other but that of all journeys, whatever its marks."""

import re
from collections import Counter
from itertools import product
from pathlib import Path

import pytest

pytest_plugins = "pytester"

MAKEFILE = Path(__file__).resolve().parents[1] / "Makefile"
MARKS = ("e2e", "alone", "drill", "thorough")


def test_each_test_is_in_one_list(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    lists = re.findall(r"\$\(PYTEST\) -m \"([^\"]+)\"", MAKEFILE.read_text(encoding="utf-8"))
    assert len(lists) == 6  # units, alone, e2e, drills, cases, journeys
    pytester.makeini("[pytest]\nmarkers =\n" + "".join(f"  {mark}\n" for mark in MARKS))
    made = ["import pytest"]
    expected: dict[str, int] = {}
    for number, values in enumerate(product((False, True), repeat=len(MARKS))):
        marks = [mark for mark, value in zip(MARKS, values, strict=True) if value]
        made += [*(f"@pytest.mark.{mark}" for mark in marks), f"def test_{number:02}(): pass"]
        # one journey goes on where another has ended, so that those of every commit are run with the others once more
        expected[f"test_{number:02}"] = 2 if "e2e" in marks and "thorough" not in marks else 1
    path = pytester.makepyfile("\n".join(made))
    run: Counter[str] = Counter()
    for one in lists:
        run.update(call.item.name for call in pytester.inline_run(path, "-m", one).getcalls("pytest_runtest_call"))
    assert run == expected


def test_no_build_of_torch_is_pinned() -> None:
    """`make run` keeps the one that is there, for CPUs or for CUDA."""
    pins = MAKEFILE.with_name("constraints.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in pins if re.match(r"(torch|triton|nvidia-cu[-\w]*)==", line)] == []
