import json
import math
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from scalebook.app.runs import run_query
from scalebook.app.runs.run_query import RunQuery, ValueRange
from scalebook.app.runs.widgets import ListView, known_keys
from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files.records import BrokenRecord
from scalebook.training.base.workspace import Workspace
from scalebook.training.tracking import names
from scalebook.training.tracking.run_reader import RunRecord


def run(number: int, status: str = "FINISHED", loss: float | None = None, **tags: str) -> RunRecord:
    keys = {"model": names.TAG_MODEL, "batch": names.TAG_BATCH_PER_WORKER, "asked": names.TAG_LR_ASKED,
            "scaled": names.TAG_LR_SCALED, "notebook": names.TAG_NOTEBOOK, "trial": names.TAG_TRIAL,
            "search": names.TAG_SEARCH, "note": names.TAG_NOTE, "test": names.TAG_TEST}  # fmt: skip
    found = {} if loss is None else {names.VAL_LOSS: loss, names.best(names.VAL_LOSS): loss}
    told = {keys.get(key, key): value for key, value in tags.items()}
    return RunRecord(str(number), f"run {number}", "0", status, float(number), number + 9.0, told, {}, found)


RUNS = [
    run(4, "FAILED", model="own.MLP", batch="1024", asked="0.010", notebook="a.md"),
    run(
        3, loss=0.5, model="own.MLP", batch="64", asked="0.1", scaled="0.4", notebook="a.md", good="", note="Look here"
    ),
    run(2, loss=math.nan, model="PixelCNN", batch="64", asked="1e-2", notebook="b.md", trial="7"),
    run(1, loss=0.25, model="PixelCNN", batch="256", asked="0.01", notebook="b.md", good="", kind="big"),
    run(0, search="s"),
    run(9, test="plan"),
]


def ids(query: RunQuery) -> str:
    return "".join(record.id for record in run_query.select_runs(RUNS, query))


def test_runs_pass_by_value_text_and_tag() -> None:
    assert ids(RunQuery()) == "431"
    assert ids(RunQuery(trials=True)) == "4321"
    assert ids(RunQuery(tests=True)) == "9431"
    assert [run_query.purpose(RUNS[i]) for i in (-1, 0)] == ["measured for Plan", ""]
    assert ids(RunQuery(facets={"model": ["MLP"], "state": []})) == "43"
    assert ids(RunQuery(facets={"model": ["MLP", "PixelCNN"], "batch": ["64", "256"]})) == "31"
    assert ids(RunQuery(facets={"rate": ["0.01"]}, trials=True)) == "421", "the same rate, however it is written"
    assert ids(RunQuery(facets={"state": ["failed"]})) == "4"
    assert (ids(RunQuery("LOOK")), ids(RunQuery("run 1")), ids(RunQuery("kind=b"))) == ("3", "1", "1")
    assert (ids(RunQuery(tags=["good"])), ids(RunQuery(tags=["good", "kind=big"]))) == ("31", "1")


def test_runs_are_sorted_by_anything_and_what_has_no_value_is_last() -> None:
    assert ids(RunQuery(sort="started", down=False)) == "134"
    assert (ids(RunQuery(sort="batch")), ids(RunQuery(sort="batch", down=False))) == ("413", "314"), "as numbers"
    assert ids(RunQuery(sort=names.VAL_LOSS, trials=True)) == "3142"
    assert ids(RunQuery(sort=names.VAL_LOSS, down=False, trials=True)) == "1342"
    assert ids(RunQuery(sort="no such thing")) == "431"


def test_values_and_metrics_to_choose_from() -> None:
    assert run_query.options(RUNS, "batch") == ["64", "256", "1024"]
    assert run_query.options(RUNS, "rate") == ["0.01", "0.4"]
    assert run_query.options(RUNS, "notebook") == ["a", "b"]
    assert run_query.metrics(RUNS) == [names.best(names.VAL_LOSS), names.VAL_LOSS]


def test_groups_have_counts_and_means() -> None:
    first, second = run_query.groups(RUNS[:4], "notebook", [names.VAL_LOSS])
    assert (first.value, first.runs, first.states, first.best, first.mean) == (
        "a", 2, "1 failed, 1 finished", 0.5, 0.5,
    )  # fmt: skip
    assert (second.value, second.best, second.columns) == ("b", 0.25, {names.VAL_LOSS: 0.25})
    assert [group.value for group in run_query.groups(RUNS, "model")] == ["MLP", "PixelCNN", ""]


WIDTHS = {"4": "64", "3": "1024", "1": "16"}
KINDS = {"4": "relu", "3": "gelu", "2": "relu"}


def with_parameters() -> list[RunRecord]:
    return run_query.with_parameters(RUNS, {"width": WIDTHS, "kind": KINDS})


def passing(query: RunQuery) -> str:
    return "".join(record.id for record in run_query.select_runs(with_parameters(), query))


def test_runs_pass_by_the_range_of_a_metric_or_a_parameter() -> None:
    assert passing(RunQuery(ranges={names.VAL_LOSS: ValueRange(high=0.3)}, trials=True)) == "1", "neither NaN nor none"
    assert passing(RunQuery(ranges={names.VAL_LOSS: ValueRange(0.25, 0.5)})) == "31", "both ends"
    assert passing(RunQuery(ranges={"params.width": ValueRange(low=20)})) == "43"
    assert passing(RunQuery(ranges={"params.width": ValueRange(low=20), names.VAL_LOSS: ValueRange(low=0.1)})) == "3"
    assert passing(RunQuery(ranges={"params.width": ValueRange(), "no such": ValueRange()})) == "431", "without an end"
    assert passing(RunQuery(ranges={"no such": ValueRange(low=0)})) == ""
    assert passing(RunQuery(ranges={"params.kind": ValueRange(low=0)})) == "", "a word is in no range"
    assert passing(RunQuery(values={"params.kind": ["relu"]}, trials=True)) == "42"
    assert passing(RunQuery(values={"params.kind": []})) == "431"
    assert [RunQuery(ranges={"a": one}).narrows for one in (ValueRange(), ValueRange(low=0.0))] == [False, True]


def test_runs_are_sorted_by_a_parameter_as_numbers_or_words() -> None:
    assert passing(RunQuery(sort="params.width", down=False)) == "143"
    assert passing(RunQuery(sort="params.kind", down=False)) == "341"
    mixed = run_query.with_parameters(RUNS, {"x": {"4": "none", "3": "2", "1": "10"}})
    assert "".join(run.id for run in run_query.select_runs(mixed, RunQuery(sort="params.x", down=False))) == "314"


def test_a_parameter_of_numbers_has_a_range_and_one_of_words_choices() -> None:
    assert run_query.choices({"a": "1", "b": "1e-5"}) is None
    assert run_query.choices({"a": "relu", "b": "1", "c": "relu"}) == ["1", "relu"]
    assert run_query.parameter_columns([names.VAL_LOSS, "params.a.b"]) == ["a.b"]


def test_infinity_is_read_as_it_was_logged() -> None:
    stored = replace(run(1), metrics={"a": sys.float_info.max, "b": -sys.float_info.max, "c": 1.0})
    assert [run_query.value(stored, name) for name in ("a", "b", "c", "d")] == [math.inf, -math.inf, 1.0, None]


def test_groups_have_means_of_parameters() -> None:
    (group,) = run_query.groups([run for run in with_parameters() if run.id in "43"], "notebook", ["params.width"])
    assert group.columns == {"params.width": 544.0}


VIEW = ListView(
    RunQuery("a b", {"state": ["failed"], "model": ["MLP"], "rate": ["0.1", "0.2"]}, ["good", "kind=big"], True,
             "params.lr", False, True, {"val loss": ValueRange(high=0.5), "params.width": ValueRange(1e-07, 64.0)},
             {"params.kind": ["relu", "gelu & co"]}),
    "notebook",
    ["métrique/é", "params.lr"],
)  # fmt: skip


def test_a_view_is_kept_under_its_name_replaced_and_deleted(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    assert run_query.saved_views(workspace) == []
    run_query.save_view(workspace, " my   view ", {"find": ["x"]})
    run_query.save_view(workspace, "Another", VIEW.address())
    run_query.save_view(workspace, "my view", {"columns": ["a", "b"]})
    assert [view.name for view in run_query.saved_views(workspace)] == ["Another", "my view"]
    assert run_query.saved_views(workspace)[1].parameters == {"columns": ["a", "b"]}
    run_query.delete_view(workspace, "Another")
    assert [view.name for view in run_query.saved_views(workspace)] == ["my view"]
    assert [path.name for path in workspace.hidden.iterdir() if path.is_file()] == ["views.json"], "nothing beside it"


def test_an_address_says_all_of_a_view(tmp_path: Path) -> None:
    run_query.save_view(Workspace(tmp_path), "all", VIEW.address())
    (view,) = run_query.saved_views(Workspace(tmp_path))
    assert view.parameters == {
        "find": ["a b"], "state": ["failed"], "model": ["MLP"], "rate": ["0.1", "0.2"], "tag": ["good", "kind=big"],
        "trials": ["true"], "tests": ["true"], "by": ["val loss", "params.width", "params.kind"],
        "from params.width": ["1e-07"], "to val loss": ["0.5"], "to params.width": ["64"],
        "is params.kind": ["relu", "gelu & co"], "columns": ["métrique/é", "params.lr"], "group": ["notebook"],
        "sort": ["params.lr"], "down": ["false"],
    }  # fmt: skip
    assert known_keys(view.parameters) == view.parameters
    assert ListView(RunQuery(), "", []).address() == {}
    assert VIEW.filter_words() == (
        "state failed, model MLP, rate 0.1 or 0.2, tag good or kind=big, name a b, params.kind relu or gelu & co, "
        "val loss at most 0.5, params.width 1e-07 to 64"
    )


@pytest.mark.parametrize("name", ["", "  ", "a" * 61, "bell\x07", "zero\u200bwidth"])
def test_a_name_that_nobody_can_read_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="view: needs a name of 1 to 60 characters"):
        run_query.save_view(Workspace(tmp_path), name, {})


def test_there_are_not_more_than_can_be_looked_through(tmp_path: Path) -> None:
    for number in range(run_query.MOST_VIEWS):
        run_query.save_view(Workspace(tmp_path), str(number), {})
    run_query.save_view(Workspace(tmp_path), "7", {"find": ["again"]})
    with pytest.raises(ConfigError, match="limit of 100"):
        run_query.save_view(Workspace(tmp_path), "one more", {})


def test_a_strangers_file_is_read_with_care(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path).create()
    told = [("fine", "find=x&state=gone&group=__class__&sort=../../x&down=maybe&trials=1"), ("", "find=x"),
            ("\x1b[31mred", ""), ("long", "find=" + "x" * 9000), ("many", "&".join(["a=1"] * 200)),
            ("fine", "find=twice")]  # fmt: skip
    content = {"version": 1, "views": [{"name": name, "address": address, "more": 1} for name, address in told]}
    run_query.views_file(workspace).write_text(json.dumps(content))
    (view,) = run_query.saved_views(workspace)
    assert (view.name, view.parameters) == ("fine", {"find": ["twice"]})
    assert known_keys({"find": ["x"], "run": ["id"], "embed": ["true"]}) == {"find": ["x"]}


@pytest.mark.parametrize("content", ["", "[]", '{"views": 3}', '{"version": 99, "views": []}', "[" * 100_000])
def test_a_file_that_is_none_of_ours_is_not_replaced(content: str, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path).create()
    run_query.views_file(workspace).write_text(content)
    with pytest.raises(BrokenRecord):
        run_query.save_view(workspace, "mine", {})
    assert run_query.views_file(workspace).read_text() == content


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path).create()
    elsewhere = tmp_path / "elsewhere.json"
    elsewhere.write_text('{"views": [{"name": "a", "address": ""}]}')
    os.symlink(elsewhere, run_query.views_file(workspace))
    with pytest.raises(BrokenRecord, match="a link"):
        run_query.saved_views(workspace)
