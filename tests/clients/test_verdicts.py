"""The verdicts of `tests/clients`, and that each case has a program."""

import ast
from pathlib import Path
from typing import Any

import pytest

from tests.clients.case import Case, Measure, Way
from tests.clients.program import is_refused
from tests.clients.run import _found, where
from tests.clients.table import CASES, by_name
from tests.clients.verdicts import Result, report, verdict

CASE = Case("one", "module.one", (), {"loss": Measure("lower", 0.2), "hits": Measure("higher", 0.1)})
SINGLE = Result("one", "single", "ended", {"loss": 1.0, "hits": 0.9})
DDP = Result("one", "ddp", "ended", {"loss": 1.5, "hits": 0.7})


def _ours(outcome: Any = "ended", error: str = "", **values: float) -> Result:
    return Result("one", "async", outcome, values, error)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (_ours(loss=1.69, hits=0.61), "held"),
        (_ours(loss=1.71, hits=0.9), "differs"),
        (_ours(loss=0.1, hits=0.59), "differs"),
        (_ours(loss=float("nan"), hits=0.9), "differs"),
        (_ours(loss=1.0), "differs"),
        (_ours("refused", "ValueError: model: ..."), "refused"),
        (_ours("failed", "TimeoutError: worker 1 waited"), "hang"),
        (_ours("failed", "TypeError: another"), "failed"),
        (_ours("hang"), "hang"),
        (_ours("not here"), "not here"),
    ],
    ids=["held", "worse", "fewer", "nan", "missing", "refused", "waited", "failed", "hang", "absent"],
)
def test_a_run_is_worse_only_than_both_baselines(result: Result, expected: str) -> None:
    assert verdict(CASE, result, {"single": SINGLE, "ddp": DDP})[0] == expected


def test_a_baseline_that_did_not_end_says_nothing() -> None:
    baselines: dict[Way, Result] = {"single": SINGLE, "ddp": Result("one", "ddp", "failed", error="TypeError: x")}
    assert verdict(CASE, _ours(loss=1.3, hits=0.9), baselines) == ("differs", "loss 1.3, not 1")
    assert verdict(CASE, _ours("failed", "TypeError: y"), baselines)[0] == "as DDP"
    assert verdict(CASE, _ours(loss=1.3, hits=0.9), {})[0] == "held"


def test_a_split_model_is_to_be_the_same() -> None:
    case = Case("one", "module.one", (), {"loss": Measure("same", 1e-5, ("single",))}, ways=("single", "tensor"))
    for loss, expected in ((1.000009, "held"), (0.99998, "differs"), (float("nan"), "differs")):
        assert verdict(case, Result("one", "tensor", "ended", {"loss": loss}), {"single": SINGLE})[0] == expected


def test_sync_equals_one_process_where_a_case_is_exact() -> None:
    case = Case("one", "module.one", (), {"loss": Measure("lower", 0.2)}, exact={"loss": 1e-5})
    for loss, expected in ((1.000009, "held"), (0.99998, "differs"), (float("nan"), "differs")):
        of_sync = Result("one", "sync", "ended", {"loss": loss})
        assert verdict(case, of_sync, {"single": SINGLE, "ddp": DDP})[0] == expected
    assert verdict(case, _ours(loss=0.9), {"single": SINGLE})[0] == "held"


def test_what_is_left_behind_is_said() -> None:
    left = Result("one", "async", "ended", {"loss": 1.0, "hits": 0.9}, left=["/dev/shm/torch_1"])
    assert verdict(CASE, left, {"single": SINGLE}) == ("left something", "/dev/shm/torch_1")


def test_the_table_has_numbers_and_verdicts() -> None:
    case = CASES[0]
    results = {(case.name, way): Result(case.name, way, "ended", {"loss": 1.0, "saved": 0.0}) for way in ("single",)}
    results[case.name, "async"] = Result(case.name, "async", "ended", {"loss": 9.0, "saved": 0.0})
    lines = report(results).splitlines()  # type: ignore[arg-type]
    assert lines[2] == f"| {case.name} | loss | 1 |  | 9 **differs** |  |  |"
    assert lines[-1] == f"{case.name}, async: differs: loss 9, not 1"


def test_split_models_have_a_table_of_their_own() -> None:
    (case,) = by_name("split_itself")
    values = {"loss": 1.0, "weights": 2.0, "saved": 0.0}
    ways: list[Way] = ["single", "shard"]
    lines = report({(case.name, way): Result(case.name, way, "ended", values) for way in ways}).splitlines()
    assert lines[0] == "| case | measure | single | tensor x 2 | shard x 2 | 2 x 2 |"
    assert lines[2:5] == [f"| {case.name} | loss | 1 |  | 1 |  |", "", "1 runs with ModelParallel: 1 held"]


def test_a_refusal_is_one_of_the_documented_ones() -> None:
    assert is_refused("model: two optimizers share a parameter. Give each parameter to one optimizer")
    assert is_refused(
        "optimizer: X does not work with a parameter server: it wraps another optimizer, which keeps the state."
    )
    assert not is_refused("You selected an invalid strategy name: `strategy=<AsyncPS>`")


def test_a_run_without_an_outcome_has_died(tmp_path: Path) -> None:
    (tmp_path / "output.txt").write_text("one\ntwo\nKilled\n")
    assert _found(tmp_path) == {"outcome": "failed", "error": "died: one / two / Killed"}


def test_a_hang_says_where_each_worker_waits() -> None:
    stacks = """process 1
  File "/x/selectors.py", line 415 in select
  File "/x/training/lightning/processes/process_watch.py", line 124 in _ready
process 2
  File "/x/training/engine/memory/event.py", line 58 in _sleep
  File "/x/training/lightning/async_ps/applied_step.py", line 174 in _push
process 3
  File "/x/python3.11/threading.py", line 3 in wait
process 4
"""
    assert where(stacks) == "lightning/async_ps/applied_step.py:174 _push; python3.11/threading.py:3 wait"


def test_every_case_has_a_program() -> None:
    """Read, not imported: the libraries are not here."""
    assert len({case.name for case in CASES}) == len(CASES)
    folder = Path(__file__).with_name("cases")
    for case in CASES:
        module, _, function = case.program.partition(".")
        tree = ast.parse((folder / f"{module}.py").read_text(encoding="utf-8"))
        assert function in {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}, case.name
    assert [case.name for case in by_name("SCVI")] == ["scvi-tools SCVI"]
