"""How fast the pages are: first paint of each with 1,000 runs in the store, and Run to the first point on the chart.

    python benchmarks/pages.py [--runs 1000] [--repeats 5]

Starts the app on a temporary workspace, with a real Chromium in front of it, 1280 x 1000. First paint is from the
navigation to the moment the page's own content is visible, in a new tab each time, after one visit to warm server and
browser; most of that is Streamlit's own start in the tab ("the menu"). In a tab that is open, from a click in the menu.
Prints medians and ranges, seconds, and the machine's load, on which they depend.
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import BrowserContext, Page, sync_playwright

from scalebook.training.files import yaml
from scalebook.training.workspace import Workspace
from tests.app.recorded import config, record
from tests.e2e.conftest import CHROMIUMS, end_supervisor, serve

CELLS = 6
NOTEBOOKS = 10
TIMEOUT_MS = 60_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="scalebook-bench-") as folder:
        workspace = Workspace(Path(folder)).create()
        first = _fill(workspace, options.runs)
        served = serve(workspace)
        try:
            with sync_playwright() as playwright:
                path = next(path for name in CHROMIUMS if (path := shutil.which(name)))
                browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
                context = browser.new_context(viewport={"width": 1280, "height": 1000})
                served.let_in(context)
                _measure(context, served.addresses.app, first, options.repeats)
        finally:
            served.end()
            end_supervisor(workspace)


def _fill(workspace: Workspace, runs: int) -> list[str]:
    """`runs` finished runs over NOTEBOOKS notebooks of CELLS experiments, seed after seed; the ids of two of them."""
    began = time.perf_counter()
    ids = []
    for i in range(runs):
        notebook = "first-steps.md" if i % NOTEBOOKS == 0 else f"notebook-{i % NOTEBOOKS}.md"
        cell, seed = f"experiment-{i // NOTEBOOKS % CELLS}", 1 + i // (NOTEBOOKS * CELLS)
        ids.append(record(workspace, cell=cell, notebook=notebook, seed=seed).id)
    cells = [f"```yaml experiment=experiment-{i}\n{yaml.dump({'config': config()})}```\n" for i in range(CELLS)]
    text = "---\ntitle: Benchmark\n---\nSix experiments.\n\n" + "\n".join(cells)
    (workspace.root / "first-steps.md").write_text(text, encoding="utf-8")
    print(f"{runs} runs recorded in {time.perf_counter() - began:.0f} s")
    return [ids[0], ids[NOTEBOOKS]]


def _measure(context: BrowserContext, address: str, ids: list[str], repeats: int) -> None:
    pages: dict[str, tuple[str, Callable[[Page], None]]] = {
        "compare, nothing chosen": ("/compare", lambda page: _seen(page, ".sb-empty", 1)),
        "notebook, 6 experiments": ("/", lambda page: _seen(page, ".sb-name", CELLS)),
        "compose": ("/compose?notebook=first-steps", lambda page: _seen(page, ".st-key-compose-run button", 1)),
        "runs": ("/runs", lambda page: _seen(page, "[data-testid=stDataFrame] canvas", 1)),
        "one run": (f"/runs?run={ids[0]}", lambda page: _seen(page, ".sb-facts", 1)),
        "one run, its charts drawn": (f"/runs?run={ids[0]}", lambda page: _seen(page, ".js-plotly-plot .main-svg", 2)),
        "compare, 2 runs": (f"/compare?runs={','.join(ids)}", lambda page: _seen(page, "table.sb", 1)),
        "compare, its chart drawn": (
            f"/compare?runs={','.join(ids)}",
            lambda page: _seen(page, ".js-plotly-plot .main-svg", 1),
        ),
    }
    print("\n| first paint | median s | range s |\n|---|---|---|")
    _print("the menu", [_paint(context, f"{address}/compare", _menu_seen) for _ in range(repeats + 1)][1:])
    for name, (path, ready) in pages.items():
        _print(name, [_paint(context, address + path, ready) for _ in range(repeats + 1)][1:])
    for link, target in {
        "Notebook": "notebook, 6 experiments",
        "Runs": "runs",
        "Compare": "compare, nothing chosen",
    }.items():
        times = [_by_menu(context, address, link, pages[target][1]) for _ in range(repeats + 1)][1:]
        _print(f"{target}, by a click in an open tab", times)
    _print("click on Run to the first point on the chart", [_run_to_chart(context, address) for _ in range(repeats)])
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def _print(name: str, times: list[float]) -> None:
    print(f"| {name} | {statistics.median(times):.2f} | {min(times):.2f} – {max(times):.2f} |", flush=True)


def _seen(page: Page, selector: str, count: int) -> None:
    page.locator(selector).nth(count - 1).wait_for(state="visible", timeout=TIMEOUT_MS)


def _paint(context: BrowserContext, url: str, ready: Callable[[Page], None]) -> float:
    """Seconds until the content is there, in a new tab."""
    page = context.new_page()
    began = time.perf_counter()
    page.goto(url, wait_until="commit")
    ready(page)
    took = time.perf_counter() - began
    page.close()
    return took


def _menu_seen(page: Page) -> None:
    page.get_by_role("link", name="Runs", exact=True).first.wait_for(state="visible", timeout=TIMEOUT_MS)


def _by_menu(context: BrowserContext, address: str, link: str, ready: Callable[[Page], None]) -> float:
    """Seconds from a click in the menu of a tab that shows another page."""
    page = context.new_page()
    page.goto(f"{address}/compare" if link != "Compare" else f"{address}/runs")
    _menu_seen(page)
    page.wait_for_timeout(3000)
    began = time.perf_counter()
    page.get_by_role("link", name=link, exact=True).first.click()
    ready(page)
    took = time.perf_counter() - began
    page.close()
    return took


def _run_to_chart(context: BrowserContext, address: str) -> float:
    """Seconds from the click to a curve; ends when the run has, so that the next one finds its devices free."""
    page = context.new_page()
    page.goto(f"{address}/compose?notebook=first-steps")
    run = page.locator(".st-key-compose-run button").first
    run.wait_for(timeout=TIMEOUT_MS)
    page.wait_for_timeout(5000)  # a person reads the form
    began = time.perf_counter()
    run.click()
    page.locator(".js-plotly-plot .scatterlayer .trace").first.wait_for(state="attached", timeout=TIMEOUT_MS)
    took = time.perf_counter() - began
    page.locator(".sb-chip.sb-finished").first.wait_for(timeout=TIMEOUT_MS)
    page.close()
    return took


if __name__ == "__main__":
    main()
