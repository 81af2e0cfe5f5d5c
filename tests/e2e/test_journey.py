"""What a stranger does, in a real browser, against the real thing; in order, each step on what the last one left."""

import os
import re
import signal
import time
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from scalebook.app.runs import records as run_records
from scalebook.app.serving.child import answers
from scalebook.training.jobs.job_requests import all_jobs
from scalebook.training.notebook import store
from scalebook.training.tracking import names
from scalebook.training.tracking.run_reader import RunReader
from tests.e2e.conftest import Served
from tests.e2e.steps import fill

START_MS = 40_000  # for a run to start on two busy cores, its process included
RUN_MS = 60_000
EPOCHS = 8  # a run of three is over between two looks
DARK = "rgb(20, 24, 27)"
runs: dict[str, str] = {}
"""Run ids by strategy, from one step to the next."""


def choose(page: Page, label: str, option: str) -> None:
    """Scrolled to first: a list closes when the page moves under it."""
    box = page.get_by_role("combobox", name=label, exact=True)
    expect(box).to_be_visible(timeout=10_000)
    box.scroll_into_view_if_needed()
    box.click()
    page.get_by_role("option", name=option).first.click()


def compose_and_run(page: Page, served: Served, strategy: str, yaml: str, bound: int | None = None) -> str:
    """From the notebook to a submitted run; returns its id. `bound` chooses the rule `bounded`."""
    page.goto(served.addresses.app)
    page.get_by_role("button", name="New experiment").click(timeout=20_000)
    expect(page.get_by_role("heading", name="New experiment")).to_be_visible(timeout=20_000)
    choose(page, "Model", "PixelCNN")
    choose(page, "Strategy", strategy)
    if bound is not None:
        choose(page, "Rule", "bounded")
        fill(page, "Bound", str(bound))
    fill(page, "Epochs", str(EPOCHS))
    code = page.locator(".st-key-beside .sb-code").first
    expect(code).to_contain_text(yaml, timeout=10_000)
    expect(code).to_contain_text("devices: 2")
    expect(code).to_contain_text(f"max_epochs: {EPOCHS}")
    expect(page.locator(".st-key-beside .sb-facts")).to_contain_text("global batch")
    page.locator(".st-key-compose-run button").first.click()
    page.wait_for_url(re.compile(r"/runs\?run=[0-9a-f]{32}"), timeout=20_000)
    return page.url.rsplit("=", 1)[1]


def wait_until_finished(page: Page) -> None:
    expect(page.locator(".sb-chip").first).to_have_text("finished", timeout=RUN_MS)


def test_a_blank_form_becomes_a_run_with_progress_curves_and_what_each_worker_does(page: Page, served: Served) -> None:
    run = runs["async"] = compose_and_run(
        page, served, "Parameter server", "class_path: scalebook.training.engine.rules.Bounded", bound=3
    )
    expect(page.locator(".sb-chip").first).to_have_text(re.compile("waiting|running"))
    expect(page.locator("[data-testid=stProgress]")).to_contain_text(
        re.compile(r"training|validating"), timeout=START_MS
    )
    expect(page.locator(".js-plotly-plot .scatterlayer .trace").first).to_be_attached(timeout=RUN_MS)
    expect(page.locator(".sb-summary").first).to_contain_text("parameter server × 2, bounded, bound 3")
    wait_until_finished(page)
    for title in ("Where the time went", "Throughput by worker", "Staleness", "Pushes"):
        expect(page.get_by_role("heading", name=title)).to_be_visible(timeout=10_000)
    expect(page.get_by_text("Samples drawn by the model").first).to_be_visible()
    expect(page.locator(".sb-facts").first).to_contain_text("mean staleness")
    lines = page.locator(".st-key-throughput .scatterlayer .trace")
    expect(lines).to_have_count(2, timeout=10_000)
    rows = page.locator("table.sb").first.locator("tbody tr")
    expect(rows).to_have_count(2)
    applied = [int(rows.nth(i).locator("td").nth(1).inner_text().replace(",", "")) for i in (0, 1)]
    reader = RunReader(served.workspace.tracking_uri())
    found = reader.run(run)
    assert found.tags[names.TAG_RULE] == "bounded, bound 3"
    assert sum(applied) == found.metrics[names.UPDATES]
    assert min(applied) > 0
    assert names.DROPPED not in found.metrics  # it is 0
    assert 0 < found.metrics[names.STALENESS_MEAN] < 60
    assert run_records.workers_in_store(reader, run).last["worker_1/perf/compute_share"] > 0


@pytest.mark.thorough
def test_reloading_and_another_tab_show_the_same(page: Page, served: Served) -> None:
    address = f"{served.addresses.app}/runs?run={runs['async']}"
    page.goto(address)
    wait_until_finished(page)
    figures = page.locator(".sb-facts").text_content()
    assert figures is not None
    assert "mean staleness" in figures
    page.reload()
    expect(page.locator(".sb-facts")).to_have_text(figures, timeout=20_000)
    page.goto(served.addresses.app)
    card = page.locator(".st-key-cell-experiment-pixelcnn-bounded-x2")
    expect(card.locator(".sb-chip").first).to_have_text("finished", timeout=20_000)
    saved = store.read(served.workspace.root / "first-steps.md").notebook.experiment("pixelcnn-bounded-x2")
    assert saved is not None
    assert saved.config["trainer"]["max_epochs"] == EPOCHS
    page.get_by_role("button", name="Switch to the dark theme").click()
    for path in ("/", "/compare"):
        expect(page.locator(".stApp")).to_have_css("background-color", DARK)
        page.goto(served.addresses.app + path)
    page.get_by_role("button", name="Switch to the light theme").click()
    expect(page.get_by_role("button", name="Switch to the dark theme")).to_be_visible()


def test_a_killed_page_server_leaves_the_run_alone_and_comes_back(page: Page, served: Served) -> None:
    runs["ddp"] = compose_and_run(page, served, "DDP", "strategy: ddp")
    expect(page.locator("[data-testid=stProgress]")).to_contain_text(
        re.compile(r"training|validating"), timeout=START_MS
    )
    job = next(one for one in all_jobs(served.workspace) if one.id == runs["ddp"])
    before = job.started()
    server = served.now().children[0]
    os.kill(server.pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    port = int(served.addresses.app.rsplit(":", 1)[1])
    while served.now().children[0] == server or not answers(port, "/_stcore/health"):
        assert time.monotonic() < deadline, "the page server did not come back"
        time.sleep(0.2)
    assert job.started() == before
    assert served.now().app == served.addresses.app
    assert "Scalebook ended unexpectedly. Restarting it" in served.printed()
    tab = page.get_by_test_id("stApp")  # open all the while: it goes on by itself, and is known still
    expect(tab).to_have_attribute("data-test-connection-state", "CONNECTED", timeout=60_000)
    page.goto(f"{served.addresses.app}/runs?run={runs['ddp']}")
    wait_until_finished(page)
    result = job.result()
    assert result is not None
    assert result.status == "finished"


def test_both_are_compared_here_and_in_mlflow(page: Page, served: Served) -> None:
    page.goto(f"{served.addresses.app}/compare?runs={runs['async']},{runs['ddp']}")
    expect(page.locator(".js-plotly-plot .scatterlayer .trace")).to_have_count(2, timeout=20_000)
    page.get_by_text("seconds", exact=True).first.click()
    expect(page.locator(".js-plotly-plot .xtitle").first).to_have_text("seconds", timeout=10_000)
    for word, begins in (("PNG", b"\x89PNG"), ("SVG", b"<svg"), ("CSV", b"series,seconds,val/bits_per_dim\r\n")):
        with page.expect_download() as download:
            page.get_by_role("button", name=f"Download this chart as {word}").first.click()
        assert Path(download.value.path()).read_bytes().startswith(begins)
    table = page.locator("table.sb").first
    expect(table).to_contain_text("pixelcnn-bounded-x2 · seed 1")
    expect(table).to_contain_text("pixelcnn-ddp-x2 · seed 1")
    expect(page.locator("table.sb").nth(1)).to_contain_text("perf/communicate_share")
    differing = page.locator("table.sb").nth(2)
    expect(differing).to_contain_text("trainer.strategy")
    expect(differing).not_to_contain_text("max_epochs")
    address = page.get_by_role("link", name="Open in MLflow").get_attribute("href")
    assert address is not None
    page.get_by_role("button", name="Save in a notebook").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox", name="Name", exact=True).fill("two-ways")
    dialog.get_by_role("button", name="Save", exact=True).click()  # before the page has heard of the name
    expect(page.locator(".st-key-cell-comparison-two-ways .scatterlayer .trace")).to_have_count(2)
    page.goto(address)
    for name in ("seed 1: pixelcnn-bounded-x2", "seed 1: pixelcnn-ddp-x2"):
        expect(page.get_by_text(name).first).to_be_visible(timeout=30_000)


@pytest.mark.thorough
def test_the_notebook_is_exported_and_opens_without_a_server(page: Page, served: Served, tmp_path: Path) -> None:
    page.goto(served.addresses.app)
    page.get_by_role("button", name="Export").click(timeout=20_000)
    with page.expect_download(timeout=30_000) as download:
        page.locator(".st-key-notebook-export-html button").click()
    assert download.value.suggested_filename == "first-steps.html"
    path = tmp_path / "first-steps.html"
    download.value.save_as(path)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    expect(page.locator("svg.chart").first).to_be_visible()
    expect(page.locator("section.cell").first).to_contain_text("PixelCNN")
    assert asked == [path.as_uri()]
    config = page.locator("details pre").first
    expect(config).not_to_be_visible()
    page.emulate_media(media="print")
    expect(config).to_be_visible()
    expect(config).to_contain_text(f"max_epochs: {EPOCHS}")


@pytest.mark.thorough
def test_the_list_of_runs_is_filtered(page: Page, served: Served) -> None:
    page.goto(f"{served.addresses.app}/runs")
    expect(page.locator("[data-testid=stDataFrame] canvas").first).to_be_visible(timeout=20_000)
    page.get_by_placeholder("Name, note or tag").fill("zebra")
    page.get_by_placeholder("Name, note or tag").press("Enter")
    expect(page.get_by_text("No matching run")).to_be_visible(timeout=10_000)
    page.goto(f"{served.addresses.app}/runs")
    page.get_by_role("button", name="Filter", exact=True).click()
    page.locator(".st-key-strategy input").click()
    page.get_by_role("option", name=re.compile("DDP")).first.click()
    expect(page.get_by_text("1 run: strategy DDP × 2.")).to_be_visible(timeout=10_000)
    expect(page).to_have_url(re.compile(r"/runs\?strategy=DDP"))
    page.reload()
    expect(page.get_by_text("1 run: strategy DDP × 2.")).to_be_visible(timeout=20_000)
