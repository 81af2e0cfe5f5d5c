"""What a careful person trips over elsewhere: a reload with words half typed, a wrong number and a quick click."""

import re
import time

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import Served

pytestmark = pytest.mark.thorough


def test_nothing_typed_is_lost_and_nothing_wrong_is_run(page: Page, served: Served) -> None:
    path = served.workspace.root / "first-steps.md"
    before = path.read_bytes()
    jobs = sorted(served.workspace.jobs.iterdir())
    half_a_note(page, served)
    assert path.read_bytes() == before
    a_wrong_number(page, served)
    a_broken_text(page, served)
    assert path.read_bytes() == before
    assert sorted(served.workspace.jobs.iterdir()) == jobs


def half_a_note(page: Page, served: Served) -> None:
    """Typed, reloaded without leaving the box, found again under its label, saved by one quick click, undone."""
    page.goto(served.addresses.app)
    page.get_by_role("button", name="Add a note").click()
    box = page.locator("[class*='st-key-editor-'] textarea")
    box.click()
    page.keyboard.type("Half a thou")
    expect(page.locator(".st-key-note-preview")).to_have_text("Half a thou")  # a pause in typing is enough
    deadline = time.monotonic() + 20
    while not list(served.workspace.cache.glob("note-draft-*")):
        assert time.monotonic() < deadline, "what is half typed is not put aside"
        page.wait_for_timeout(100)
    page.reload()
    label = page.locator("[class*='st-key-draft-label-']")
    expect(label).to_contain_text("Draft of a new note")
    expect(label).to_contain_text("Half a thou")
    label.get_by_role("button", name="Continue").click()
    expect(box).to_have_value("Half a thou")
    box.press("End")
    box.type("ght")
    page.get_by_role("button", name="Save", exact=True).click()  # which takes the focus from the box
    expect(box).to_have_count(0)  # the preview beside it says the same
    note = page.get_by_text("Half a thought", exact=True)
    expect(note).to_have_count(1)  # a busy page has what was drawn before for a moment longer
    expect(note).to_be_visible()
    expect(label).to_have_count(0)
    page.get_by_role("button", name="Undo").click()
    expect(note).to_have_count(0)


def a_wrong_number(page: Page, served: Served) -> None:
    """Run is pressed at once, before the page has heard of the number."""
    page.goto(f"{served.addresses.app}/compose?notebook=first-steps")
    run = page.locator(".st-key-compose-run button").first
    expect(run).to_be_enabled()
    epochs = page.get_by_role("textbox", name="Epochs", exact=True)
    epochs.fill("1,5")
    run.click()
    expect(page.locator(".st-key-beside")).to_contain_text("Fix this to run or save")
    expect(page.get_by_test_id("stAlertContentError")).to_contain_text("'1,5' is not a whole number")
    expect(run).to_be_disabled()
    expect(epochs).to_have_value("1,5")
    assert re.search(r"/compose\?", page.url)
    epochs.fill("2")
    epochs.press("Enter")
    expect(run).to_be_enabled()


def a_broken_text(page: Page, served: Served) -> None:
    """It is not saved and survives a reload."""
    page.get_by_text("YAML", exact=True).first.click()
    box = page.get_by_role("textbox", name="Config")
    expect(box).to_have_value(re.compile("max_epochs: 2"))
    box.fill("model: PixelCNN\ntrainer: [1\n")
    page.locator(".st-key-compose-save button").first.click()
    expect(page.get_by_text("is not YAML").first).to_be_visible()
    expect(page.locator(".st-key-compose-save button").first).to_be_disabled()
    page.reload()
    expect(page.get_by_text("Draft of this experiment")).to_be_visible()
    expect(box).to_have_value("model: PixelCNN\ntrainer: [1\n")
    page.get_by_role("button", name="Start over").click()
    expect(page.get_by_text("Draft of this experiment")).to_have_count(0)
