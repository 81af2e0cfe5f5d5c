"""Journals that a crash has torn, stores that are away, addresses that are wrong."""

import json
import os
import random
import resource
from pathlib import Path

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.search.study.storage import mend, open_storage, without_password
from scalebook.training.search.study.study import Study
from scalebook.training.search.study.study_reader import read_study
from tests.training.search.studies import BATCH, RATE, journal, run, search

SPEC = search(BATCH, RATE, sampler="random")


@pytest.fixture
def whole(tmp_path: Path) -> bytes:
    """A journal of five trials, one of them running."""
    study = Study.open(journal(tmp_path), "x", SPEC)
    run(study, 4)
    study.report(study.ask().number, 100, 1.0)
    return (tmp_path / "journal.log").read_bytes()


def test_a_journal_cut_anywhere_opens_and_goes_on(tmp_path: Path, whole: bytes) -> None:
    """Cut at 20 random bytes of its last lines: what was written whole is there, and the search ends as it should."""
    path, rng = tmp_path / "journal.log", random.Random(1)
    last_trial = len(b"".join(whole.splitlines(keepends=True)[:-8]))
    for cut in rng.sample(range(last_trial, len(whole)), 20):
        path.write_bytes(whole[:cut])
        study = Study.open(journal(tmp_path), "x", SPEC)
        assert bool(study.mended) == (not whole[:cut].endswith(b"\n"))
        assert [one.state for one in study.records()[:3]] == ["finished"] * 3
        left = study.running()
        assert all(set(one.point) == {"batch_size", "learning_rate"} for one in left)
        for one in left:
            study.finish(one.number, [0.0])
        run(study, 6 - len(study.records()))
        assert [one.state for one in read_study(journal(tmp_path), "x", SPEC)] == ["finished"] * 6
        for line in path.read_bytes().splitlines():
            json.loads(line)


@pytest.mark.parametrize("sampler", ["random", "tpe", "grid", "qmc"])
def test_a_driver_killed_within_an_ask_asks_the_same_again(tmp_path: Path, sampler: str) -> None:
    """The journal as it is after each line that an ask writes."""
    space = (BATCH, RATE) if sampler != "grid" else (BATCH,)
    spec = search(*space, sampler=sampler)
    study = Study.open(journal(tmp_path), "x", spec)
    run(study, 3 if sampler != "tpe" else 11)
    path = tmp_path / "journal.log"
    before = len(path.read_bytes().splitlines())
    asked = study.ask()
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) - before >= 1 + len(space)
    for kept in range(before + 1, len(lines) + 1):
        path.write_bytes(b"".join(lines[:kept]))
        (again,) = Study.open(journal(tmp_path), "x", spec).running()
        assert again == asked or (sampler == "qmc" and kept < len(lines))  # its sequence goes on instead


def test_zeros_after_a_crash_of_the_machine_are_cut_off(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "journal.log"
    path.write_bytes(whole + b"\0" * 4096)
    assert mend(journal(tmp_path)) == (
        "the journal's last line was incomplete after a crash, so its 4096 bytes were removed"
    )
    assert path.read_bytes() == whole
    assert mend(journal(tmp_path)) == ""


def test_a_file_that_is_no_journal_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    path.write_text("my notes", encoding="utf-8")
    assert mend(journal(tmp_path)) == ""
    path.write_text("my notes\nmore\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"storage: the journal .*journal\.log cannot be read"):
        Study.open(journal(tmp_path), "x", SPEC)
    assert path.read_text(encoding="utf-8") == "my notes\nmore\n"


def test_a_line_that_finds_no_room_is_taken_back(tmp_path: Path, whole: bytes) -> None:
    """In a child process, whose files may not grow: the journal is as before and can be written again."""
    path = tmp_path / "journal.log"
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            import signal

            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            kept = open_storage(journal(tmp_path))
            resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 20, len(whole) + 20))
            try:
                kept.set_trial_user_attr(4, "note", "long enough to be cut")
            except OSError:
                code = 0 if path.read_bytes() == whole else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    open_storage(journal(tmp_path)).set_trial_user_attr(4, "note", "there is room again")
    assert len(path.read_bytes()) > len(whole)


def test_a_killed_writer_leaves_no_lock(tmp_path: Path, whole: bytes) -> None:
    """With Optuna's own lock the next write takes 30 s."""
    del whole
    pid = os.fork()
    if pid == 0:
        try:
            import fcntl

            handle = os.open(tmp_path / "journal.log", os.O_RDWR)
            fcntl.flock(handle, fcntl.LOCK_EX)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    study = Study.open(journal(tmp_path), "x", SPEC)
    study.finish(4, [1.0])
    assert [path.name for path in tmp_path.iterdir()] == ["journal.log"]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nosuchdb://me:secret@host/x", r"the driver for nosuchdb://me:\*\*\*@host/x is not installed"),
        ("postgresql+nodriver://me:secret@host/x", r"driver for .* is not installed.*pip install"),
        ("postgresql+pg8000://me:secret@host/x", r"driver for .* is not installed.*pip install"),
        ("me:secret@host", r"is not a database address"),
        ("sqlite:////no/such/folder/x.db", r"cannot be used: unable to open database file"),
    ],
)
def test_an_address_that_cannot_be_is_named_without_its_password(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        Study.open(url, "x", SPEC)
    assert raised.value.problem.key == "storage"
    assert "secret" not in str(raised.value)
    with pytest.raises(ConfigError, match=message):
        read_study(url, "x", SPEC)


def test_a_journal_in_a_place_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"storage: journal:.*file/x/journal\.log: "):
        Study.open(f"journal:{tmp_path / 'file' / 'x' / 'journal.log'}", "x", SPEC)


def test_passwords_are_hidden_wherever_they_stand() -> None:
    assert without_password("postgresql://me:p@ss:w@host:1/x") == "postgresql://me:***@host:1/x"
    assert without_password("postgresql://me@host/x?password=secret&a=b") == "postgresql://me@host/x?password=***&a=b"
    assert without_password("sqlite:////tmp/a.db") == "sqlite:////tmp/a.db"
