"""What the server's monitor has for those of other machines, and what all machines must have started with."""

from pathlib import Path

from scalebook.training.ps.channel.mailbox import Board
from scalebook.training.ps.channel.mirror import settings_digest
from scalebook.training.ps.policy.settings import Settings


def test_each_machine_hears_every_text_once_and_eight_at_most() -> None:
    board, heard = Board(), list[str]()
    for number in range(20):
        board.put(str(number))
    while more := board.since(1, len(heard)):
        assert len(more) <= 8
        assert not board.is_read()
        heard += more
    assert heard == [str(number) for number in range(20)]
    assert board.is_read(), "it has asked, and there was no more"
    assert board.since(2, 19) == ["19"]
    assert not board.is_read()
    board.leave(2)
    assert board.is_read(), "who has left is not waited for"


def test_machines_agree_wherever_each_writes_its_trace() -> None:
    assert settings_digest(Settings(trace=Path("/here"))) == settings_digest(Settings(trace=Path("/there")))
    assert settings_digest(Settings()) != settings_digest(Settings(shards=2))
