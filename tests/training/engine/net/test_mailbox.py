"""What the first monitor has for those of other machines, and what all machines must have started with."""

import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from scalebook.training.engine.net import mailbox
from scalebook.training.engine.net.mailbox import MessageBoard
from scalebook.training.engine.net.version_mirror import settings_digest
from scalebook.training.engine.rules.settings import Settings


def test_each_machine_hears_every_text_once_and_eight_at_most() -> None:
    board, heard = MessageBoard(), list[str]()
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
    board.remove_node(2)
    assert board.is_read(), "who has left is not waited for"


def test_a_machine_that_does_not_ask_is_silent_once_and_until_it_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox, "DEAD_S", 0.2)
    board = MessageBoard()
    board.put("news")
    board.since(1, 0)
    assert board.take_silent() == []
    time.sleep(0.3)
    board.since(2, 1)
    assert board.take_silent() == [1]
    assert board.is_read(), "it is not waited for"
    assert board.take_silent() == []
    board.since(1, 0)
    assert not board.is_read()
    time.sleep(0.3)
    assert sorted(board.take_silent()) == [1, 2]


def test_a_process_that_is_stopped_is_known_from_one_that_waits() -> None:
    child = os.fork()
    if child == 0:
        while True:
            time.sleep(60)
    try:
        until = time.monotonic() + 20
        while psutil.Process(child).status() != psutil.STATUS_SLEEPING and time.monotonic() < until:
            time.sleep(0.01)
        assert not mailbox._is_stopped(child)
        os.kill(child, signal.SIGSTOP)
        os.waitpid(child, os.WUNTRACED)
        assert mailbox._is_stopped(child)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert not mailbox._is_stopped(child)


def test_machines_agree_wherever_each_writes_its_trace() -> None:
    assert settings_digest(Settings(trace=Path("/here"))) == settings_digest(Settings(trace=Path("/there")))
    assert settings_digest(Settings()) != settings_digest(Settings(shards=2))
