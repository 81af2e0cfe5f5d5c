"""Files of a job brought piece by piece: whole, in order, over links that lose, repeat and stop."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from scalebook.training.cluster import incoming_files
from scalebook.training.cluster.incoming_files import RESULT, FilePiece, IncomingFiles, files_of, news


def bring(there: Path, brought: IncomingFiles) -> int:
    """All that is to be had now; how many pieces it was."""
    count = 0
    while pieces := list(news(there, brought.has(), files_of(there))):
        for piece in pieces:
            brought.write_piece(piece)
        count += len(pieces)
    return count


def add(file: Path, more: bytes) -> None:
    with file.open("ab") as opened:
        opened.write(more)


@pytest.fixture
def there(tmp_path: Path) -> Path:
    (tmp_path / "there" / "checkpoints").mkdir(parents=True)
    return tmp_path / "there"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "here").mkdir()
    return tmp_path / "here"


def test_files_grow_are_replaced_and_go_and_the_result_is_seen_last(there: Path, here: Path) -> None:
    (there / "log.txt").write_text("one\n")
    (there / "progress.json").write_text("1")
    (there / "checkpoints" / "a.ckpt").write_bytes(b"a" * 100)
    (there / RESULT).write_text("done")
    (there / ".half").write_text("being written")
    (there / "config.yaml").write_text("theirs")
    brought = IncomingFiles(here)
    assert bring(there, brought) == 4
    assert (files_of(here), (here / "log.txt").read_text()) == (
        ["checkpoints/a.ckpt", "log.txt", "progress.json"], "one\n",
    )  # fmt: skip
    add(there / "log.txt", b"two\n")
    (there / "progress.json").write_text("2")
    (there / "checkpoints" / "a.ckpt").unlink()
    (there / "checkpoints" / "b.ckpt").write_bytes(b"b")
    bring(there, brought)
    brought.prune(files_of(there))
    assert ((here / "log.txt").read_text(), (here / "progress.json").read_text()) == ("one\ntwo\n", "2")
    assert files_of(here) == ["checkpoints/b.ckpt", "log.txt", "progress.json"]
    assert not (here / RESULT).exists()
    brought.finish()
    assert (here / RESULT).read_text() == "done"


def test_nothing_is_lost_or_doubled_over_a_link_that_loses_repeats_and_forgets(
    there: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever brings may be killed at any time: the next one knows the folder alone."""
    monkeypatch.setattr(incoming_files, "PIECE", 7)
    monkeypatch.setattr(incoming_files, "ROOM", 20)
    chance, log = random.Random(3), b""
    brought, late = IncomingFiles(here), list[FilePiece]()
    for turn in range(200):
        more = b"%d " % turn * chance.randrange(3)
        log += more
        add(there / "log.txt", more)
        if chance.random() < 0.2:
            (there / "checkpoints" / "last.ckpt").write_bytes(b"%d" % turn * 30)
        for piece in news(there, brought.has(), files_of(there)):
            late.append(piece)
            if chance.random() < 0.7:
                brought.write_piece(piece)
        if chance.random() < 0.3:
            brought.write_piece(chance.choice(late)) if late else None
        if chance.random() < 0.05:
            brought = IncomingFiles(here)
    bring(there, brought)
    assert (here / "log.txt").read_bytes() == log
    assert (here / "checkpoints" / "last.ckpt").read_bytes() == (there / "checkpoints" / "last.ckpt").read_bytes()


def test_a_piece_of_a_log_behind_one_that_was_lost_is_not_put_behind_a_gap(
    there: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incoming_files, "PIECE", 4)
    (there / "log.txt").write_bytes(b"one two three")
    brought = IncomingFiles(here)
    (first,) = news(there, {}, ["log.txt"])
    (second,) = news(there, {"log.txt": ("", 4)}, ["log.txt"])
    brought.write_piece(second)
    assert brought.has().get("log.txt", ("", 0)) == ("", 0)
    for piece in (first, second, first):
        brought.write_piece(piece)
    assert (here / "log.txt").read_bytes() == b"one two "
    bring(there, brought)
    assert (here / "log.txt").read_bytes() == b"one two three"


@pytest.mark.parametrize(
    "path", ["../x", "/tmp/x", "a/../../x", "process.json", "job.json", ".hidden", "a/.b", "", "remote.json"]
)
def test_a_machine_cannot_write_elsewhere(here: Path, path: str) -> None:
    piece = FilePiece(path, "1-1-1", 0, b"x", 1)
    with pytest.raises(ValueError, match="a node has sent a file named"):
        IncomingFiles(here).write_piece(piece)
    (here / "link").symlink_to("/tmp")
    with pytest.raises(ValueError, match="through a link"):
        IncomingFiles(here).write_piece(replace(piece, path="link/x"))
    assert [found.name for found in here.iterdir()] == ["link"]
