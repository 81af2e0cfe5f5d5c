from pathlib import Path

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.cluster.ray_daemons import reached

TOKEN = {"RAY_AUTH_MODE": "token"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "word"
    path.write_text("a1" * 32)
    path.chmod(0o600)
    return path


def test_a_head_that_somebody_else_has_brought_up_is_known_by_its_address(token: Path) -> None:
    told = {**TOKEN, "RAY_AUTH_TOKEN_PATH": str(token)}
    found = reached("10.0.0.1:6379", told)
    assert (found.address, found.host) == ("10.0.0.1:6379", "")
    assert reached("auto", {**told, "RAY_ADDRESS": "head:6379"}).address == "head:6379"
    assert reached("auto", {**TOKEN, "RAY_AUTH_TOKEN": "a1" * 32, "RAY_ADDRESS": "head:6379"}).address == "head:6379"


def test_ray_s_own_place_of_a_token_counts(token: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the cluster's token is not at .*/\.ray/auth_token"):
        reached("10.0.0.1:6379", TOKEN)
    (tmp_path / ".ray").mkdir()
    token.rename(tmp_path / ".ray" / "auth_token")
    assert reached("10.0.0.1:6379", TOKEN).address == "10.0.0.1:6379"
    (tmp_path / ".ray" / "auth_token").chmod(0o644)
    with pytest.raises(ConfigError, match="can be read by other users"):
        reached("10.0.0.1:6379", TOKEN)


def test_without_a_token_and_without_an_address_nobody_is_met(token: Path) -> None:
    with pytest.raises(ConfigError, match="Without a token, anybody can run code"):
        reached("10.0.0.1:6379", {"RAY_AUTH_TOKEN_PATH": str(token)})
    for environ in ({}, {"RAY_ADDRESS": "auto"}):
        with pytest.raises(ConfigError, match="no cluster was started on this machine"):
            reached("auto", {**TOKEN, **environ})
