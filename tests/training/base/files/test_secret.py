import os
import stat
from pathlib import Path

import pytest

from scalebook.training.base.files.secret import kept_secret, put_secret


def made(path: Path, content: bytes = b"new") -> bytes:
    return kept_secret(path, lambda: content, lambda found: len(found) == 3)


def test_it_is_made_once_for_its_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "state" / "key"
    assert made(path) == b"new"
    assert made(path, b"two") == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [*path.parent.iterdir()] == [path]


@pytest.mark.parametrize(("content", "mode"), [(b"old", 0o640), (b"old", 0o604), (b"of no use", 0o600), (b"", 0o600)])
def test_one_that_others_could_read_or_that_holds_none_is_made_anew(tmp_path: Path, content: bytes, mode: int) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(mode)
    assert made(path) == path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_another_users_is_neither_believed_nor_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "key"
    put_secret(path, b"old")
    for another in (0, os.getuid() + 1):
        monkeypatch.setattr(os, "getuid", lambda uid=another: uid)
        if path.stat().st_uid != another:
            with pytest.raises(PermissionError, match="belongs to another user"):
                made(path)
    assert path.read_bytes() == b"old"


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    put_secret(tmp_path / "planted", b"old")
    (tmp_path / "key").symlink_to(tmp_path / "planted")
    with pytest.raises(OSError, match="symbolic links"):
        made(tmp_path / "key")


def test_of_two_that_make_one_at_once_one_wins(tmp_path: Path) -> None:
    path = tmp_path / "key"

    def make() -> bytes:
        put_secret(path, b"won")
        return b"new"

    assert kept_secret(path, make, lambda found: len(found) == 3) == b"won"
