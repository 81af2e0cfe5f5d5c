import time

import pytest

from scalebook.app import state
from scalebook.app.state import Clicks


def test_a_click_waits_until_it_is_settled_and_counts_once() -> None:
    clicks = Clicks()
    assert not clicks.waits("run", "v1")
    clicks.note("run", "v1")
    assert [clicks.waits("run", "v1") for _ in range(3)] == [True] * 3  # however often the page is begun anew
    clicks.mark_handled("run")
    assert not clicks.waits("run", "v1")
    clicks.note("run", "v1")  # the second of a double click
    assert not clicks.waits("run", "v1")
    clicks.start_over()  # as after Undo, by which the page is in its earlier state
    clicks.note("run", "v1")
    assert clicks.waits("run", "v1")
    clicks.mark_handled("run")
    clicks.note("run", "v2")
    assert clicks.waits("run", "v2")


def test_a_click_on_what_is_not_there_any_more_does_nothing_later_either() -> None:
    clicks = Clicks()
    clicks.note("run", "v1")
    assert not clicks.waits("run", "v2")
    assert not clicks.waits("run", "v1")


def test_what_could_not_be_done_can_be_clicked_again_and_so_can_what_says_nothing_of_its_state() -> None:
    clicks = Clicks()
    clicks.note("run", "v1")
    clicks.mark_handled("run", done=False)
    clicks.note("run", "v1")
    assert clicks.waits("run", "v1")
    for _ in range(2):
        clicks.note("edit", "")
        assert clicks.waits("edit", "")
        clicks.mark_handled("edit")


def test_an_old_click_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    clicks = Clicks()
    clicks.note("run", "")
    clicks.forget()
    assert not clicks.waits("run", "")
    clicks.note("run", "")
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + state.CLICK_LASTS_S + 1)
    assert not clicks.waits("run", "")
