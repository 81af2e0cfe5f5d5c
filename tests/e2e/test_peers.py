"""Peers from the form to a comparison: what is chosen, the graph, the metrics, and the axis of samples."""

import re

import pytest
from playwright.sync_api import Page, expect

from scalebook.training.tracking.run_reader import RunReader
from tests.e2e.conftest import Served
from tests.e2e.steps import fill
from tests.e2e.test_journey import START_MS, choose, wait_until_finished

pytestmark = pytest.mark.thorough


def compose(page: Page, served: Served, exchange: str | None) -> str:
    """A run of the digits under peers, or where `exchange` is None under DDP; returns its id."""
    page.goto(served.addresses.app)
    page.get_by_role("button", name="New experiment").click(timeout=20_000)
    expect(page.get_by_role("heading", name="New experiment")).to_be_visible(timeout=20_000)
    choose(page, "Model", "MLPClassifier")
    choose(page, "Strategy", "DDP" if exchange is None else "Peers")
    fill(page, "Epochs", "4")
    if exchange is not None:
        choose(page, "Exchange", exchange)
        choose(page, "Topology", "exponential")
        code = page.locator(".st-key-beside .sb-code").first
        expect(code).to_contain_text("class_path: scalebook.training.lightning.Peers", timeout=10_000)
        expect(code).to_contain_text(exchange)
    page.locator(".st-key-compose-run button").first.click()
    page.wait_for_url(re.compile(r"/runs\?run=[0-9a-f]{32}"), timeout=20_000)
    return page.url.rsplit("=", 1)[1]


def test_peers_from_the_form_to_a_comparison_by_samples(page: Page, served: Served) -> None:
    run = compose(page, served, "ad_psgd")
    expect(page.locator(".sb-summary").first).to_contain_text("peers × 2", timeout=START_MS)
    wait_until_finished(page)
    expect(page.get_by_role("heading", name="Peers", exact=True)).to_be_visible(timeout=10_000)
    graph = page.locator(".st-key-peer-graph")
    expect(graph).to_be_visible()
    expect(page.get_by_text("λ2, is").first).to_be_visible()
    recorded = RunReader(served.workspace.tracking_uri()).run(run).metrics
    assert recorded["peers/consensus_distance"] > 0
    assert recorded["peers/busiest_bytes_per_update"] > 0
    other = compose(page, served, None)
    wait_until_finished(page)
    page.goto(f"{served.addresses.app}/compare?runs={run},{other}")
    expect(page.locator(".js-plotly-plot .scatterlayer .trace")).to_have_count(2, timeout=20_000)
    page.get_by_text("samples", exact=True).first.click()
    expect(page.locator(".js-plotly-plot .xtitle").first).to_have_text("samples", timeout=10_000)
