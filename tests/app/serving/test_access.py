import argparse
import os
import stat
from pathlib import Path

import pytest

from scalebook.app.serving.access import Access, add_options, keep_token
from scalebook.training.base.errors import ConfigError
from scalebook.training.base.workspace import Workspace


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "scalebook" / "tokens"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "notebooks")


def test_the_token_stays_is_the_owners_alone_and_lies_outside_the_folder(workspace: Workspace, state: Path) -> None:
    token = keep_token(workspace)
    assert len(token) >= 32
    (file,) = state.iterdir()
    assert file.read_text().strip() == token
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert keep_token(Workspace(workspace.root / ".." / "notebooks")) == token
    assert keep_token(Workspace(workspace.root.parent / "others")) != token
    assert not workspace.root.exists()


@pytest.mark.parametrize("content", ["", "short", "x" * 20 + "\n" + "y" * 20, "ä" * 40, "\0" * 40])
def test_a_broken_token_is_replaced(workspace: Workspace, state: Path, content: str) -> None:
    keep_token(workspace)
    (file,) = state.iterdir()
    file.write_text(content, encoding="utf-8")
    token = keep_token(workspace)
    assert token != content
    assert keep_token(workspace) == token


def test_a_token_that_others_could_read_is_replaced(workspace: Workspace, state: Path) -> None:
    token = keep_token(workspace)
    (file,) = state.iterdir()
    file.chmod(0o640)
    assert keep_token(workspace) != token
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_token_that_cannot_be_kept_is_a_mistake_with_a_remedy(workspace: Workspace, state: Path) -> None:
    state.parent.mkdir(parents=True)
    state.write_text("a file where a folder should be")
    with pytest.raises(ConfigError, match=r"Set XDG_STATE_HOME to a folder that you own\."):
        keep_token(workspace)


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_options(parser)
    return parser.parse_args(arguments)


def test_a_server_that_is_started_asks_what_its_owner_was_told_to(workspace: Workspace) -> None:
    """The token goes by its file: command lines can be read by other users."""
    for told in ([], ["--no-token"], ["--allow-host", "Lab.example.org", "--allow-host", "localhost:9000"]):
        access = Access.from_options(parsed(*told), workspace)
        arguments = access.arguments()
        assert Access.from_options(parsed(*arguments), workspace) == access
        assert access.token is None or not any(access.token in one for one in arguments)
    assert access.hosts == ("lab.example.org", "localhost:9000")
    assert str(access.token) not in repr(access)


def test_each_workspace_has_a_cookie_of_its_own(tmp_path: Path) -> None:
    assert Access.of(Workspace(tmp_path / "a")).cookie != Access.of(Workspace(tmp_path / "b")).cookie


def test_the_opening_address(workspace: Workspace) -> None:
    access = Access.of(workspace)
    assert access.opening("http://127.0.0.1:8501") == f"http://127.0.0.1:8501/?token={access.token}"
    assert Access.of(workspace, with_token=False).opening("http://127.0.0.1:8501") == "http://127.0.0.1:8501"


def test_names_of_this_machine_go_with_the_port(workspace: Workspace) -> None:
    access = Access.of(workspace, ("lab.example.org",), with_token=False)
    assert access.authorities(8501) == {"127.0.0.1:8501", "localhost:8501", "[::1]:8501", "lab.example.org"}
    assert "localhost" in access.authorities(80)


@pytest.mark.parametrize("host", ["http://lab", "lab/x", "*", "", "lab:", "a b", "lab:port", "-x", ".lab"])
def test_no_host_is_a_mistake_with_a_remedy(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed(f"--allow-host={host}")
    assert "is not a host. Use NAME or NAME:PORT, without http://" in capsys.readouterr().err


def test_this_machines_name_at_any_port_is_not_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    """Any other program's page on this machine would be of our own origin."""
    with pytest.raises(SystemExit):
        parsed("--allow-host", "localhost")
    assert "Add the port: localhost:9000" in capsys.readouterr().err


def test_a_link_in_the_tokens_place_is_not_followed(workspace: Workspace, state: Path, tmp_path: Path) -> None:
    keep_token(workspace)
    (file,) = state.iterdir()
    file.unlink()
    planted = tmp_path / "planted"
    planted.write_text("p" * 40)
    planted.chmod(0o600)
    os.symlink(planted, file)
    with pytest.raises(ConfigError, match="cannot be used"):
        keep_token(workspace)
