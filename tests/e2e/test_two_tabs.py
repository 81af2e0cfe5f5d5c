"""Two tabs on one notebook: edits of different cells are both kept; of the same, the highlighted choice undoes none."""

import re

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from scalebook.training.notebook import store
from tests.e2e.conftest import Served
from tests.e2e.steps import TINY

pytestmark = pytest.mark.thorough

TEXT = f"---\ntitle: Two tabs\n---\n# Question\n\nDoes it help?\n\n{TINY}\nThe end.\n"


def test_edits_in_two_tabs_are_merged_by_cell(known: BrowserContext, served: Served) -> None:
    path = served.workspace.root / "two-tabs.md"
    path.write_text(TEXT, encoding="utf-8")
    tabs = known.new_page(), known.new_page()
    try:
        of_different_notes(*tabs, served)
        assert path.read_text(encoding="utf-8") == TEXT.replace("help?", "hurt?").replace("The end.", "The very end.")
        what_changed_is_told(tabs[0])
        of_the_same_note(*tabs, served)
    finally:
        for tab in tabs:
            tab.close()
        path.unlink()
    both = path.with_name("two-tabs-2.md")
    assert "Mine." in both.read_text(encoding="utf-8")
    both.unlink()


def edit(tab: Page, note: int, text: str) -> None:
    tab.locator("[class*='st-key-edit-note-'] button").filter(has_text="Edit").nth(note).click()
    editor = tab.locator("[class*='st-key-editor-'] textarea")
    editor.fill(text)
    expect(tab.locator(".st-key-note-preview")).to_contain_text(text.rpartition("\n")[2].strip())


def save(tab: Page) -> None:
    tab.get_by_role("button", name="Save", exact=True).click()


def of_different_notes(one: Page, other: Page, served: Served) -> None:
    for tab in (one, other):
        tab.goto(f"{served.addresses.app}/?notebook=two-tabs")
        expect(tab.get_by_text("The end.")).to_be_visible()
    edit(one, 0, "# Question\n\nDoes it hurt?")
    edit(other, 1, "The very end.")
    for tab in (one, other):
        save(tab)
        expect(tab.locator("[class*='st-key-editor-']")).to_have_count(0)
    for tab in (one, other):
        expect(tab.get_by_text("Does it hurt?")).to_be_visible()
        expect(tab.get_by_text("The very end.")).to_be_visible()
        expect(tab.get_by_role("dialog")).to_have_count(0)


def what_changed_is_told(tab: Page) -> None:
    tab.get_by_role("button", name="History").click()
    dialog = tab.get_by_role("dialog")
    expect(dialog.get_by_role("combobox", name="State")).to_have_value(re.compile("note “Question” changed"))
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_have_count(0)
    expect(tab.get_by_test_id("stApp")).to_have_attribute("data-test-script-state", "notRunning")


def of_the_same_note(one: Page, other: Page, served: Served) -> None:
    edit(one, 0, "# Question\n\nTheirs.")
    edit(other, 0, "# Question\n\nMine.")
    save(one)
    expect(one.locator("[class*='st-key-editor-']")).to_have_count(0)
    save(other)
    dialog = other.get_by_role("dialog")
    expect(dialog).to_contain_text("both edits change the same part")
    highlighted = dialog.locator("[data-testid='stBaseButton-primary']:visible")
    expect(highlighted).to_have_text("Keep both texts")
    highlighted.click()
    expect(dialog).to_have_count(0)
    expect(other.get_by_text("Theirs.")).to_be_visible()
    assert "Theirs.\n\n---\n\nMine." in store.read(served.workspace.root / "two-tabs.md").notebook.text
