"""Each test is run by one of the Makefile's lists, and by no other, whatever its marks."""

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
    assert len(lists) == 6  # shared, alone, e2e, drills, thorough and its journeys
    pytester.makeini("[pytest]\nmarkers =\n" + "".join(f"  {mark}\n" for mark in MARKS))
    made = ["import pytest"]
    for number, values in enumerate(product((False, True), repeat=len(MARKS))):
        made += [f"@pytest.mark.{mark}" for mark, value in zip(MARKS, values, strict=True) if value]
        made += [f"def test_{number:02}(): pass"]
    path = pytester.makepyfile("\n".join(made))
    run: Counter[str] = Counter()
    for one in lists:
        run.update(call.item.name for call in pytester.inline_run(path, "-m", one).getcalls("pytest_runtest_call"))
    assert run == {f"test_{number:02}": 1 for number in range(2 ** len(MARKS))}


def test_no_build_of_torch_is_pinned() -> None:
    """`make run` keeps the one that is there, for CPUs or for CUDA."""
    pins = MAKEFILE.with_name("constraints.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in pins if re.match(r"(torch|triton|nvidia-cu[-\w]*)==", line)] == []
