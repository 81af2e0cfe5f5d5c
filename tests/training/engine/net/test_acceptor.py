"""Numbers that the server gives to processes that are the same worker, one after the other."""

import os
from concurrent.futures import ThreadPoolExecutor

from scalebook.training.engine.net.acceptor import GenerationCounter


def test_who_asks_later_has_a_larger_one_in_whatever_thread_or_process() -> None:
    lives = GenerationCounter()
    reader, writer = os.pipe()
    before = lives.next_generation()
    children = []
    for _ in range(3):
        children.append(os.fork())
        if not children[-1]:
            os.write(writer, b"".join(lives.next_generation().to_bytes(8, "big") for _ in range(100)))
            os._exit(0)
    with ThreadPoolExecutor(4) as threads:
        mine = list(threads.map(lambda _: lives.next_generation(), range(300)))
    for child in children:
        os.waitpid(child, 0)
    told = os.read(reader, 3 * 800)
    theirs = [int.from_bytes(told[at : at + 8], "big") for at in range(0, len(told), 8)]
    assert sorted(mine + theirs) == list(range(before + 1, before + 601))
    assert lives.next_generation() == before + 601
    os.close(reader)
    os.close(writer)


def test_one_that_was_given_may_begin_once_and_none_that_is_older() -> None:
    lives = GenerationCounter()
    first, second, third = (lives.next_generation() for _ in range(3))
    assert (lives.newest < first, lives.have_begun) == (True, False)
    assert [lives.may_begin(one) for one in (first - 1, first, third, third + 1)] == [False, True, True, False]
    lives.activate(second)
    assert [lives.may_begin(one) for one in (first, second, third)] == [False, False, True]
    assert (lives.newest, lives.have_begun) == (second, True)


def test_those_of_another_launch_are_none_of_these() -> None:
    one, other = GenerationCounter(), GenerationCounter()
    assert not other.may_begin(one.next_generation())
