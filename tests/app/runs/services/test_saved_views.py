"""Views of the list of runs with a name: kept in one file, which may be a stranger's."""

import json
import os
from pathlib import Path

import pytest

from scalebook.app.runs.components import run_filters
from scalebook.app.runs.components.run_filters import ListView
from scalebook.app.runs.services import saved_views
from scalebook.app.runs.services.run_query import RunQuery, ValueRange
from scalebook.training.errors import ConfigError
from scalebook.training.files.records import Broken
from scalebook.training.workspace import Workspace

VIEW = ListView(
    RunQuery("a b", {"state": ["failed"], "model": ["MLP"], "rate": ["0.1", "0.2"]}, ["good", "kind=big"], True,
             "params.lr", False, True, {"val loss": ValueRange(high=0.5), "params.width": ValueRange(1e-07, 64.0)},
             {"params.kind": ["relu", "gelu & co"]}),
    "notebook",
    ["métrique/é", "params.lr"],
)  # fmt: skip


def test_a_view_is_kept_under_its_name_replaced_and_deleted(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    assert saved_views.all_views(workspace) == []
    saved_views.save(workspace, " my   view ", {"find": ["x"]})
    saved_views.save(workspace, "Another", VIEW.address())
    saved_views.save(workspace, "my view", {"columns": ["a", "b"]})
    assert [view.name for view in saved_views.all_views(workspace)] == ["Another", "my view"]
    assert saved_views.all_views(workspace)[1].parameters == {"columns": ["a", "b"]}
    saved_views.delete(workspace, "Another")
    assert [view.name for view in saved_views.all_views(workspace)] == ["my view"]
    assert [path.name for path in workspace.hidden.iterdir() if path.is_file()] == ["views.json"], "nothing beside it"


def test_an_address_says_all_of_a_view(tmp_path: Path) -> None:
    saved_views.save(Workspace(tmp_path), "all", VIEW.address())
    (view,) = saved_views.all_views(Workspace(tmp_path))
    assert view.parameters == {
        "find": ["a b"], "state": ["failed"], "model": ["MLP"], "rate": ["0.1", "0.2"], "tag": ["good", "kind=big"],
        "trials": ["true"], "tests": ["true"], "by": ["val loss", "params.width", "params.kind"],
        "from params.width": ["1e-07"], "to val loss": ["0.5"], "to params.width": ["64"],
        "is params.kind": ["relu", "gelu & co"], "columns": ["métrique/é", "params.lr"], "group": ["notebook"],
        "sort": ["params.lr"], "down": ["false"],
    }  # fmt: skip
    assert run_filters.known(view.parameters) == view.parameters
    assert ListView(RunQuery(), "", []).address() == {}
    assert VIEW.said() == (
        "state failed, model MLP, rate 0.1 or 0.2, tag good or kind=big, name a b, params.kind relu or gelu & co, "
        "val loss at most 0.5, params.width 1e-07 to 64"
    )


@pytest.mark.parametrize("name", ["", "  ", "a" * 61, "bell\x07", "zero\u200bwidth"])
def test_a_name_that_nobody_can_read_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="view: needs a name of 1 to 60 letters"):
        saved_views.save(Workspace(tmp_path), name, {})


def test_there_are_not_more_than_can_be_looked_through(tmp_path: Path) -> None:
    for number in range(saved_views.MOST):
        saved_views.save(Workspace(tmp_path), str(number), {})
    saved_views.save(Workspace(tmp_path), "7", {"find": ["again"]})
    with pytest.raises(ConfigError, match="more than 100"):
        saved_views.save(Workspace(tmp_path), "one more", {})


def test_a_strangers_file_is_read_with_care(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path).create()
    told = [("fine", "find=x&state=gone&group=__class__&sort=../../x&down=maybe&trials=1"), ("", "find=x"),
            ("\x1b[31mred", ""), ("long", "find=" + "x" * 9000), ("many", "&".join(["a=1"] * 200)),
            ("fine", "find=twice")]  # fmt: skip
    content = {"version": 1, "views": [{"name": name, "address": address, "more": 1} for name, address in told]}
    saved_views.file_of(workspace).write_text(json.dumps(content))
    (view,) = saved_views.all_views(workspace)
    assert (view.name, view.parameters) == ("fine", {"find": ["twice"]})
    assert run_filters.known({"find": ["x"], "run": ["id"], "embed": ["true"]}) == {"find": ["x"]}


@pytest.mark.parametrize("content", ["", "[]", '{"views": 3}', '{"version": 99, "views": []}', "[" * 100_000])
def test_a_file_that_is_none_of_ours_is_not_replaced(content: str, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path).create()
    saved_views.file_of(workspace).write_text(content)
    with pytest.raises(Broken):
        saved_views.save(workspace, "mine", {})
    assert saved_views.file_of(workspace).read_text() == content


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path).create()
    elsewhere = tmp_path / "elsewhere.json"
    elsewhere.write_text('{"views": [{"name": "a", "address": ""}]}')
    os.symlink(elsewhere, saved_views.file_of(workspace))
    with pytest.raises(Broken, match="a link"):
        saved_views.all_views(workspace)
