"""One model over two workers, from the form to a comparison with one process: their numbers are the same."""

import re

import pytest
from playwright.sync_api import Page, expect

from scalebook.training.tracking.run_reader import RunReader
from tests.e2e.conftest import Served
from tests.e2e.steps import fill
from tests.e2e.test_journey import START_MS, choose, wait_until_finished

pytestmark = pytest.mark.thorough


def compose(page: Page, served: Served, tensor: int) -> str:
    """A run of the digits, its layers over so many workers; returns its id."""
    page.goto(served.addresses.app)
    page.get_by_role("button", name="New experiment").click(timeout=20_000)
    expect(page.get_by_role("heading", name="New experiment")).to_be_visible(timeout=20_000)
    choose(page, "Model", "MLPClassifier")
    choose(page, "Strategy", "Model parallel" if tensor > 1 else "One process")
    fill(page, "Epochs", "1")  # more of them, and Adam enlarges rounding
    if tensor > 1:
        page.get_by_test_id("stButtonGroup").get_by_text("Tensor", exact=True).click()
        fill(page, "Workers per layer", str(tensor))
        code = page.locator(".st-key-beside .sb-code").first
        expect(code).to_contain_text("class_path: scalebook.training.lightning.ModelParallel", timeout=10_000)
        expect(code).to_contain_text(f"tensor: {tensor}")
    page.locator(".st-key-compose-run button").first.click()
    page.wait_for_url(re.compile(r"/runs\?run=[0-9a-f]{32}"), timeout=20_000)
    return page.url.rsplit("=", 1)[1]


def test_a_split_model_learns_what_one_process_does(page: Page, served: Served) -> None:
    run = compose(page, served, 2)
    expect(page.locator(".sb-summary").first).to_contain_text("model parallel × 2", timeout=START_MS)
    wait_until_finished(page)
    other = compose(page, served, 1)
    wait_until_finished(page)
    reader = RunReader(served.workspace.tracking_uri())
    split, alone = (reader.run(each).metrics["val/loss"] for each in (run, other))
    assert split == pytest.approx(alone, rel=1e-4)
    page.goto(f"{served.addresses.app}/compare?runs={run},{other}")
    expect(page.locator(".js-plotly-plot .scatterlayer .trace")).to_have_count(2, timeout=20_000)
    expect(page.get_by_text("model parallel × 2").first).to_be_visible()
