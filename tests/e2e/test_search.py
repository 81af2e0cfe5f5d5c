"""A search, from the notebook to the map and back, in a real browser against the real driver."""

import re
import time

from playwright.sync_api import Locator, Page, expect

from scalebook.app.search import data as searches
from scalebook.training.notebook import store
from scalebook.training.search import search_requests
from scalebook.training.tracking import names
from scalebook.training.tracking.run_reader import RunReader
from tests.e2e.conftest import Served
from tests.e2e.steps import TINY, fill

START_MS = 60_000  # for the first trial to start on two busy cores, driver and forking parent included
END_MS = 90_000
TRIALS = 4
NOTEBOOK = f"""---
title: Which batch size
---
# Which batch size?

{TINY}
What is found is written here.
"""


def plan(page: Page) -> Locator:
    return page.locator(".st-key-beside")


def test_a_search_is_set_up_watched_and_its_best_point_used(page: Page, served: Served) -> None:
    path = served.workspace.root / "searching.md"
    path.write_text(NOTEBOOK, encoding="utf-8")
    page.goto(f"{served.addresses.app}/?notebook=searching")
    page.get_by_role("button", name="Search", exact=True).click(timeout=20_000)
    _set_up(page)
    page.locator(".st-key-search-start button").first.click()
    page.wait_for_url(re.compile(r"/search\?search=[0-9a-f]{32}"), timeout=20_000)
    address = page.url
    search_id = address.rsplit("=", 1)[1]
    _watch(page, address)
    found = searches.find(served.workspace, search_id)
    assert found is not None
    assert (found.state, found.done, found.name) == ("finished", TRIALS, "tiny-batch-size")
    children = f"tags.`{names.TAG_PARENT}` = '{search_id}'"
    assert len(RunReader(served.workspace.tracking_uri()).runs(where=children)) == TRIALS
    _use(page, served)
    notebook = store.read(path).notebook
    kinds = [getattr(one, "name", "") for one in notebook.cells]
    assert kinds == ["", "tiny", "tiny-batch-size", "tiny-batch-size-best", ""]
    best = notebook.experiment("tiny-batch-size-best")
    assert best is not None
    assert best.config["lr_scaling"]["rule"] == "linear"
    assert search_requests.of_cell(served.workspace, "searching.md", "tiny-batch-size") == found.folder


def _set_up(page: Page) -> None:
    """A preset, four trials; a reload on the way keeps both."""
    expect(page.get_by_role("heading", name="New search")).to_be_visible(timeout=20_000)
    page.locator("[class*=choose-batch-size] button").first.click()
    expect(plan(page)).to_contain_text("Starts 60 runs", timeout=10_000)
    expect(plan(page).locator("table.sb tbody tr")).to_have_count(3)
    page.get_by_role("button", name="Next: sampler and pruner").click()
    fill(page, "Trials", str(TRIALS))
    expect(plan(page)).to_contain_text(f"Starts {TRIALS} runs", timeout=10_000)
    page.reload()
    expect(plan(page)).to_contain_text(f"Starts {TRIALS} runs", timeout=20_000)
    expect(plan(page).locator(".sb-code").first).to_contain_text("preset: batch-size")
    expect(page.get_by_role("textbox", name="Trials", exact=True)).to_have_value(str(TRIALS))


def _watch(page: Page, address: str) -> None:
    """It moves by itself; a reload in the middle shows the same search; at its end there is a map."""
    expect(page.locator(".sb-chip").first).to_have_text(re.compile("waiting|running"), timeout=10_000)
    expect(page.get_by_text(re.compile(rf"of {TRIALS} trials")).first).to_be_visible(timeout=START_MS)
    page.reload()
    expect(page.locator(".sb-name").first).to_have_text("tiny-batch-size", timeout=20_000)
    assert page.url.startswith(address)
    expect(page.locator(".sb-chip").first).to_have_text("finished", timeout=END_MS)
    expect(page.locator(".st-key-search-map .js-plotly-plot").first).to_be_attached(timeout=20_000)
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)


def _use(page: Page, served: Served) -> None:
    """The best trial as an experiment below the search, whose card tells what it found."""
    began = time.monotonic()
    page.get_by_role("button", name="Use this configuration").first.click()
    card = page.locator(".st-key-cell-experiment-tiny-batch-size-best")
    expect(card).to_contain_text("MLPClassifier on Digits", timeout=20_000)
    expect(card).to_be_in_viewport()
    expect(card).to_contain_text("Started from trial")
    assert time.monotonic() - began < 20
    found = page.locator(".st-key-cell-search-tiny-batch-size")
    expect(found.locator(".sb-chip").first).to_have_text("finished")
    expect(found).to_contain_text(f"after {TRIALS} of {TRIALS} trials")
    expect(found.get_by_role("button", name="Run")).to_be_disabled()
    page.goto(f"{served.addresses.app}/search")
    expect(page.get_by_role("link", name="tiny-batch-size")).to_be_visible(timeout=20_000)
