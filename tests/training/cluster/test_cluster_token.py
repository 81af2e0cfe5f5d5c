from pathlib import Path

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.cluster.cluster_token import found_token, make_token, take_token, token_file


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_a_token_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is missing, and no node can join without it"):
        found_token()
    path = make_token()
    word = path.read_text()
    assert (len(word), path.stat().st_mode & 0o777) == (64, 0o600)
    assert (make_token(), path.read_text()) == (path, word)
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="can be read by other users"):
        found_token()


def test_a_token_that_was_brought_is_kept(tmp_path: Path) -> None:
    brought = tmp_path / "brought"
    with pytest.raises(ConfigError, match="brought: cannot be read"):
        take_token(brought)
    brought.write_text("short")
    with pytest.raises(ConfigError, match="does not contain a token"):
        take_token(brought)
    brought.write_text("a1" * 32 + "\n")
    brought.chmod(0o644)
    assert take_token(brought) == token_file()
    assert (token_file().read_text(), token_file().stat().st_mode & 0o777) == ("a1" * 32, 0o600)
