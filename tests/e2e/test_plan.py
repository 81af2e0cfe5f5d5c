"""A plan, from an experiment to the answer and back, in a real browser."""

import re
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import Served
from tests.e2e.steps import TINY, fill
from tests.e2e.test_journey import START_MS

NOTEBOOK = f"""---
title: How many workers
---
# How many workers?

{TINY}"""


def test_an_experiment_is_planned(page: Page, served: Served) -> None:
    """From its button; a system written by hand is played, the address says all that was asked."""
    (served.workspace.root / "planning.md").write_text(NOTEBOOK, encoding="utf-8")
    page.goto(f"{served.addresses.app}/?notebook=planning")
    page.locator(".st-key-plan-tiny button").first.click(timeout=20_000)
    expect(page.get_by_role("heading", name="Plan tiny")).to_be_visible()
    expect(page.get_by_text("Plan first measures tiny")).to_be_visible()
    page.goto(f"{page.url}&system=Form&rules=async&most=4")
    fill(page, "Link", "2.5 Gbit/s")
    page.locator(".st-key-plan-play button").click()
    words = page.get_by_text("The limit is the servers' link")
    expect(words).to_be_visible(timeout=START_MS)
    expect(page).to_have_url(re.compile("bandwidth=2.5"))
    expect(page.locator(".st-key-plan-samples .scatterlayer .trace")).to_have_count(4)  # band, line, ideal, knee
    expect(page.locator("table.sb tbody tr")).to_have_count(3)
    page.reload()
    expect(words).to_be_visible()
    page.get_by_role("link", name="How many workers › tiny").click()
    expect(page.locator(".st-key-cell-experiment-tiny")).to_be_in_viewport()


LINK = "10 Gbit/s Ethernet"
SYSTEM = """title: a transformer of 600 M parameters
gradient: 1.6 s
batch_size: 8
parameters: 2.4 GB
copy_bandwidth: 10 GB/s
state: 9.6 GB
memory: 12 GB
layers:
  - {name: attention, flops: 2e11, output: 25 MB, parameters: 19 MB, saved: 200 MB, kind: pair, width: 1536, count: 40}
  - {name: mlp, flops: 3e11, output: 25 MB, parameters: 38 MB, saved: 250 MB, kind: pair, width: 1536, count: 40}
"""


@pytest.mark.thorough
def test_a_model_is_split_over_eight_workers(page: Page, served: Served) -> None:
    """The rule of two numbers comes first; what does not fit is struck out, with its bytes."""
    asked = f"system=YAML&profile={quote(SYSTEM)}&rules=ddp&most=4&split=8&links={quote(LINK)}"
    page.goto(f"{served.addresses.app}/plan?{asked}")
    page.locator(".st-key-plan-play button").click(timeout=20_000)
    expect(page.get_by_role("heading", name=f"The model split over 8 workers, {LINK}")).to_be_visible(timeout=START_MS)
    expect(page.get_by_text("A tensor split pays off from a width of")).to_be_visible()
    table = page.get_by_role("region", name=f"The model split over 8 workers, {LINK}")
    expect(table.locator("tbody tr").first).to_contain_text("waits")
    expect(table.locator("s").first).to_be_visible()
    expect(table.locator("tbody tr").last).to_contain_text("more than the memory of a worker, 12 GB")
