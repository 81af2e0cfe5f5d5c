import os
import stat
from pathlib import Path

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.node_rank import KEY_FILE
from scalebook.training.base.trust import JOB, may_run, sign
from scalebook.training.base.workspace import Workspace
from scalebook.training.lightning.processes import key_file
from scalebook.training.lightning.processes.key_file import key_of_run, read_key


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return tmp_path / "state" / "key"


def test_the_key_is_made_by_the_first_and_read_by_nobody_else(key: Path) -> None:
    read_key(key, makes=True)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    content = key.read_text()
    assert repr(read_key(key, makes=False)) == "Secret()"
    key.chmod(0o640)
    with pytest.raises(ConfigError, match=r"SCALEBOOK_KEY_FILE: .* can be read by other users.*chmod 600") as caught:
        read_key(key, makes=True)
    assert content.strip() not in str(caught.value)


def test_a_machine_without_the_key_says_where_it_is_to_come_from(key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_file, "MAKING_S", 0.2)
    with pytest.raises(ConfigError, match=r"SCALEBOOK_KEY_FILE: names .*, which does not exist .* Copy the file from"):
        read_key(key, makes=False)
    assert key_file.key_file({"XDG_STATE_HOME": "/state"}) == Path("/state/scalebook/machines-key")
    assert key_file.key_file({}) == Path.home() / ".local/state/scalebook/machines-key"


def test_who_has_signed_before_has_another_key_for_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are of one person, and in one folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv(KEY_FILE, raising=False)
    workspace = Workspace(tmp_path).create()
    job = workspace.jobs / "one"
    job.mkdir()
    for name in JOB:
        (job / name).write_text("{}", encoding="utf-8")
    sign(job, "one", JOB)
    kept = read_key(key_file.key_file(os.environ), makes=True)
    assert may_run(workspace, job, JOB)
    assert read_key(key_file.key_file(os.environ), makes=False).proof(b"") == kept.proof(b"")


def test_where_no_file_is_named_a_run_that_needs_none_has_a_key_by_its_name(key: Path) -> None:
    """A file that lies where AsyncPS has it is not read: it may be on one machine only."""
    nowhere = {"XDG_STATE_HOME": str(key.parent)}
    here, there = (key_of_run(nowhere, "by hand 0 0", makes=makes) for makes in (True, False))
    assert here.proof(b"") == there.proof(b"") != key_of_run(nowhere, "by hand 0 1", makes=False).proof(b"")
    assert not key.parent.exists()
    named = {KEY_FILE: str(key)}
    made = key_of_run(named, "by hand 0 0", makes=True)
    assert made.proof(b"") == read_key(key, makes=False).proof(b"") != here.proof(b"")
