import errno
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import make_url

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.workspace import SETTINGS, ClusterSettings, Workspace
from scalebook.training.notebook import store


def test_the_nearest_folder_upwards_that_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCALEBOOK_WORKSPACE", raising=False)
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    assert Workspace.find(deep).root == deep
    (deep / "notebooks").mkdir()
    assert Workspace.find(deep).root == deep / "notebooks"
    (tmp_path / "a" / "scalebook.toml").touch()
    assert Workspace.find(deep).root == tmp_path / "a"
    Workspace(deep).create()
    assert Workspace.find(deep).root == deep
    monkeypatch.setenv("SCALEBOOK_WORKSPACE", str(tmp_path))
    assert Workspace.find(deep).root == tmp_path


def test_where_runs_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    workspace = Workspace(tmp_path)
    assert workspace.tracking_uri() == f"sqlite:///{tmp_path}/.scalebook/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    assert workspace.tracking_uri() == "http://127.0.0.1:5000"
    assert not workspace.hidden.exists()


def test_notebooks_are_the_markdown_files_of_the_folder(tmp_path: Path) -> None:
    for name in ("b.md", "a.md", ".c.md", "d.txt", "e/f.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [path.name for path in Workspace(tmp_path).notebooks()] == ["a.md", "b.md"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("modules = [", "scalebook.toml: is not TOML"),
        ("module = []", "scalebook.toml: module: is not a setting. Known settings: cluster, modules, notify."),
        ('notify = "x"', "scalebook.toml: notify: is not a table with command and webhook. Add a section [notify]"),
        ('notify.command = "ls -l"', "scalebook.toml: notify.command: must be a list of strings: a program"),
        ('notify.webhook = "file:///etc"', "scalebook.toml: notify.webhook: must be an address. Set webhook ="),
        ("modules = 'x'", "scalebook.toml: modules: must be a list of names"),
        (
            "cluster = 'auto'",
            "scalebook.toml: cluster: is not a table with address, files and environment. Add a section [cluster]",
        ),
        ("cluster.adress = 'auto'", "scalebook.toml: cluster: is not a table with address, files and environment"),
        (
            "cluster.address = 6379",
            "scalebook.toml: cluster.address: is '6379', which is not the address of a cluster. Set addr",
        ),
        (
            "cluster.address = 'a b:6379'",
            "scalebook.toml: cluster.address: is 'a b:6379', which is not the address of a cluster",
        ),
        (
            "cluster.address = '10.0.0.1'",
            "scalebook.toml: cluster.address: is '10.0.0.1', which is not the address of a cluster",
        ),
        (
            "cluster.address = 'a:80'",
            "scalebook.toml: cluster.address: is 'a:80', which is not the address of a cluster",
        ),
        ("cluster.files = 'shared'", "scalebook.toml: cluster.files: is neither auto nor copied"),
        ("modules = [1]", "scalebook.toml: modules: must be a list of names"),
    ],
)
def test_a_mistake_in_the_settings_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "scalebook.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        _ = Workspace(tmp_path).settings.cluster
    assert str(caught.value).startswith(message)
    if text.startswith("cluster"):
        assert Workspace(tmp_path).settings.modules == (), "what needs no cluster does not check it"


def test_settings_and_their_default(tmp_path: Path) -> None:
    assert Workspace(tmp_path).settings.modules == ()
    (tmp_path / "scalebook.toml").write_text('modules = ["a.b", "c"]', encoding="utf-8")
    assert Workspace(tmp_path).settings.modules == ("a.b", "c")
    assert (Workspace(tmp_path).settings.cluster, bool(ClusterSettings())) == (ClusterSettings("local", "auto"), False)
    (tmp_path / "scalebook.toml").write_text('[cluster]\naddress = "node-1.lan:6379"\nfiles = "copied"')
    assert Workspace(tmp_path).settings.cluster == ClusterSettings("node-1.lan:6379", "copied")
    assert Workspace(tmp_path).settings.cluster


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_hidden_folder_is_the_owners_alone(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "new" / "notebooks").create()
    assert {mode(path) for path in (workspace.hidden, *workspace.hidden.iterdir())} == {0o700}
    assert mode(workspace.root) == 0o755  # the notebooks are as the person's umask says


@pytest.mark.parametrize("wide", [0o755, 0o777, 0o710, 0o701])
def test_a_hidden_folder_that_others_may_open_is_closed_to_them(tmp_path: Path, wide: int) -> None:
    workspace = Workspace(tmp_path).create()
    (workspace.hidden / "older.json").write_text("{}")
    workspace.hidden.chmod(wide)
    workspace.create()
    assert mode(workspace.hidden) == 0o700
    assert mode(workspace.hidden / "older.json") == 0o644  # nobody gets as far as that


def test_a_hidden_folder_that_cannot_be_closed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else's; only another user could make one, so the refusal of the kernel is told here."""
    workspace = Workspace(tmp_path).create()
    workspace.hidden.chmod(0o755)

    def refuse(_path: Path, _mode: int) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(Path, "chmod", refuse)
    with pytest.raises(
        ConfigError,
        match=r"\.scalebook: is accessible to other users, and its permissions cannot be "
        r"changed",
    ):
        workspace.create()


COMMANDS = """
import os, sys
from scalebook.training.cli.main import main
main(["jobs", "list"])
print(oct(os.umask(0)))
"""


def test_commands_write_for_the_owner_alone_but_notebooks_for_whom_their_folder_is(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path).create()
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS], env={**os.environ, "SCALEBOOK_WORKSPACE": str(tmp_path)},
        cwd=Path(__file__).parents[3], capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "0o77"
    tmp_path.chmod(0o755)
    os.umask(0o077)
    assert mode(store.create(workspace, "Shared").path) == 0o644
    tmp_path.chmod(0o700)
    assert mode(store.create(workspace, "Mine").path) == 0o600


@pytest.mark.parametrize(
    "name", ["plain", "sp ace", "a?b", "per%20cent", "a#b", "100%", "a@b:c", "q'\"", "日本", "[x]{y}"]
)
def test_the_address_of_the_store_is_that_of_the_file_whatever_the_folder_is_called(tmp_path: Path, name: str) -> None:
    workspace = Workspace(tmp_path / name)
    assert make_url(workspace.tracking_uri()).database == str(workspace.database)
    assert make_url(workspace.tracking_uri()).query == {}
    assert workspace.tracking_uri().startswith("sqlite")


def test_a_folder_whose_name_is_no_utf_8_is_refused_in_words() -> None:
    with pytest.raises(ConfigError, match="a path that is not UTF-8"):
        Workspace(Path(os.fsdecode(b"/tmp/\xff"))).tracking_uri()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"modules = ['\xff']", "is not UTF-8 at byte 12"),
        (b"modules = [" + b"9" * 5000 + b"]", "is not TOML"),
        (b"modules = " + b"[" * 5000, "is not TOML"),
        (b"modules = ['']", "has '', which is not the name of a module"),
        (b"modules = ['../x']", "which is not the name of a module"),
        (b"modules = ['a\\u0000b']".replace(b"'", b'"'), "which is not the name of a module"),
    ],
)
def test_settings_that_cannot_be_read_say_why(tmp_path: Path, text: bytes, why: str) -> None:
    (tmp_path / SETTINGS).write_bytes(text)
    with pytest.raises(ConfigError, match=re.escape(why)):
        _ = Workspace(tmp_path).settings


def test_a_byte_order_mark_before_the_settings_is_read_over(tmp_path: Path) -> None:
    (tmp_path / SETTINGS).write_bytes(b"\xef\xbb\xbfmodules = ['a.b']")
    assert Workspace(tmp_path).settings.modules == ("a.b",)
