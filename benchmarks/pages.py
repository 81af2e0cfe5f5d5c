"""How fast the pages are with 1,000 runs and 100 searches: first paint of each, and Run to the first point of a chart.

    python -m benchmarks.pages [--runs 1000] [--searches 100] [--repeats 5] [--only WORD]

Starts the app on a temporary workspace, with a real Chromium in front of it, 1280 x 1000. First paint is from the
navigation to the frame that shows what the table names, in a new tab each time, after one visit to warm server and
browser. The page itself takes the times, frame by frame, since a query from outside has to wait for the page. Most of
it is Streamlit's own start in the tab, which ends with the menu. A chart counts when it is interactive. In an open tab
the time is from a click in the menu. Prints medians and ranges in seconds, and the machine's load, on which they
depend: read "page after it", which should be at most 0.5 s. Takes 15 minutes.
"""

import json
import os
import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import BrowserContext, Page, sync_playwright

from benchmarks.common import parser, row
from scalebook.training.base.files import yaml
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments import catalogue
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.identity import config_hash
from scalebook.training.search.search_folder import SearchFolder
from tests.app import searches
from tests.app.recorded import config, record
from tests.e2e.conftest import CHROMIUMS, end_supervisor, serve

CELLS = 6
NOTEBOOKS = 10
TIMEOUT_MS = 60_000
AFTER_MENU_S = 0.5  # what is asked for
MENU = "[data-testid=stTopNavLink]"
CHART = ".js-plotly-plot .main-svg"
PAINTED = """(told => {
  if (window.top !== window) return;
  window.painted = {};
  const look = () => {
    for (const [name, [selector, count]] of Object.entries(told)) {
      if (name in window.painted) continue;
      if (!document.querySelectorAll(selector)[count - 1]?.checkVisibility({visibilityProperty: true})) continue;
      window.painted[name] = null;
      const after = new MessageChannel();  // its turn comes when this frame has been drawn
      after.port1.onmessage = () => { window.painted[name] = performance.now() / 1000; };
      after.port2.postMessage(0);
    }
    if (Object.keys(window.painted).length < Object.keys(told).length) requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
})"""
"""By name, seconds from the navigation to the frame in which as many elements of its selector are visible."""
ALL_PAINTED = "() => Object.values(window.painted ?? {}).filter(Boolean).length === 2"


@dataclass(frozen=True)
class Filled:
    """Two runs of the first notebook, and the search with the most trials."""

    runs: list[str]
    search: SearchFolder


@dataclass(frozen=True)
class Visit:
    """One new tab: seconds to the menu, and from there to the content."""

    menu_s: float
    after_s: float


@dataclass(frozen=True)
class View:
    """A page's address, and its content: the last of `count` elements, described by `what`."""

    path: str
    what: str
    selector: str
    count: int = 1

    def wait(self, page: Page) -> None:
        page.locator(self.selector).nth(self.count - 1).wait_for(state="visible", timeout=TIMEOUT_MS)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--runs", type=int, default=1000)
    options.add_argument("--searches", type=int, default=100, help="with 1, 2, 3, ... trials")
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--only", default="", help="measure only first paint of pages whose name has this word")
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="scalebook-bench-") as folder:
        workspace = Workspace(Path(folder)).create()
        filled = fill(workspace, given.runs, given.searches)
        served = serve(workspace)
        try:
            with sync_playwright() as playwright:
                path = next(path for name in CHROMIUMS if (path := shutil.which(name)))
                browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
                context = browser.new_context(viewport={"width": 1280, "height": 1000})
                served.let_in(context)
                pages = views(filled)
                first_paint(context, served.addresses.app, pages, given.repeats, given.only)
                if not given.only:
                    _in_an_open_tab(context, served.addresses.app, pages, given.repeats)
                print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        finally:
            served.end()
            end_supervisor(workspace)


def fill(workspace: Workspace, runs: int, search_count: int) -> Filled:
    """Record `runs` finished runs over NOTEBOOKS notebooks of CELLS experiments, and `search_count` ended searches."""
    began = time.perf_counter()
    ids = []
    same = config_hash(Experiment.read(config(), catalogue.describe(workspace)))
    for i in range(runs):
        notebook = "first-steps.md" if i % NOTEBOOKS == 0 else f"notebook-{i % NOTEBOOKS}.md"
        cell, seed = f"experiment-{i // NOTEBOOKS % CELLS}", 1 + i // (NOTEBOOKS * CELLS)
        ids.append(record(workspace, cell=cell, notebook=notebook, seed=seed, config_hash=same).id)
    spec = searches.spec(trials=search_count)
    records = searches.records(spec, search_count)
    folders = [searches.folder(workspace, spec, records[: i + 1]) for i in range(search_count)]
    cells = [f"```yaml experiment=experiment-{i}\n{yaml.dump({'config': config()})}```\n" for i in range(CELLS)]
    text = "---\ntitle: Benchmark\n---\nSix experiments.\n\n" + "\n".join(cells)
    (workspace.root / "first-steps.md").write_text(text, encoding="utf-8")
    print(f"{runs} runs and {search_count} searches recorded in {time.perf_counter() - began:.0f} s")
    return Filled([ids[0], ids[NOTEBOOKS]], folders[-1])


def views(filled: Filled) -> dict[str, View]:
    """Each page by its name, and its charts as separate views."""
    one, two, search = f"/runs?run={filled.runs[0]}", ",".join(filled.runs), f"/search?search={filled.search.id}"
    setup = "/search?notebook=first-steps&experiment=experiment-0"
    plots = 3 + 1  # a chart has three pictures; the fourth is the first of the second chart
    return {
        "notebook, 6 experiments": View("/", "names of all six", ".sb-name", CELLS),
        "compose": View("/compose?notebook=first-steps", "Run", ".st-key-compose-run button"),
        "runs": View("/runs", "the table", "[data-testid=stDataFrame] canvas"),
        "one run": View(one, "its figures", ".sb-facts"),
        "one run, its charts": View(one, "two curves", CHART, plots),
        "searches": View("/search", "the table", "table.sb"),
        "one search": View(search, "the best so far", ".st-key-live-head .sb-facts"),
        "one search, its map": View(search, "the map", f".st-key-live-charts {CHART}"),
        "a search being set up": View(setup, "its buttons", ".st-key-beside button"),
        "compare, nothing chosen": View("/compare", "what to do", ".sb-empty"),
        "compare, 2 runs": View(f"/compare?runs={two}", "the table", "table.sb"),
        "compare, its chart": View(f"/compare?runs={two}", "the curves", CHART),
        "plan": View("/plan", "the form's end", ".sb-empty"),
    }


def first_paint(context: BrowserContext, app: str, pages: dict[str, View], repeats: int, only: str) -> None:
    """Print the table of new tabs."""
    print("\n" + row("first paint in a new tab", "what is there", "menu, s", "page after it, s", "range, s", "goal"))
    print("|---" * 6 + "|")
    for name, view in pages.items():
        if only in name:
            visits = [_visit(context, app, view) for _ in range(repeats + 1)][1:]
            after = sorted(visit.after_s for visit in visits)
            menu, middle = statistics.median(visit.menu_s for visit in visits), statistics.median(after)
            verdict = "met" if middle <= AFTER_MENU_S else "MISSED"
            seconds = (f"{menu:.2f}", f"{middle:.2f}", f"{after[0]:.2f} – {after[-1]:.2f}")
            print(row(name, view.what, *seconds, verdict), flush=True)


def _visit(context: BrowserContext, app: str, view: View) -> Visit:
    """Open a view in a new tab."""
    page = context.new_page()
    selectors = {"menu": [MENU, 1], "content": [view.selector, view.count]}
    page.add_init_script(f"{PAINTED}({json.dumps(selectors)})")
    page.goto(app + view.path, wait_until="commit")
    page.wait_for_function(ALL_PAINTED, timeout=TIMEOUT_MS)
    painted_s = page.evaluate("window.painted")
    page.close()
    return Visit(painted_s["menu"], max(0.0, painted_s["content"] - painted_s["menu"]))


def _in_an_open_tab(context: BrowserContext, address: str, pages: dict[str, View], repeats: int) -> None:
    print("\n| in an open tab | median s | range s |\n|---|---|---|")
    for link, target in {
        "Notebook": "notebook, 6 experiments",
        "Runs": "runs",
        "Search": "searches",
        "Compare": "compare, nothing chosen",
    }.items():
        times = [_by_menu(context, address, link, pages[target]) for _ in range(repeats + 1)][1:]
        _print(f"{target}, by a click in the menu", times)
    _print("click on Run to the first point on the chart", [_run_to_chart(context, address) for _ in range(repeats)])


def _print(name: str, times: list[float]) -> None:
    print(f"| {name} | {statistics.median(times):.2f} | {min(times):.2f} – {max(times):.2f} |", flush=True)


def _menu_seen(page: Page) -> None:
    page.get_by_role("link", name="Runs", exact=True).first.wait_for(state="visible", timeout=TIMEOUT_MS)


def _by_menu(context: BrowserContext, address: str, link: str, target: View) -> float:
    """Seconds from a click in the menu of a tab that shows another page."""
    page = context.new_page()
    page.goto(f"{address}/compare" if link != "Compare" else f"{address}/runs")
    _menu_seen(page)
    page.wait_for_timeout(3000)
    began = time.perf_counter()
    page.get_by_role("link", name=link, exact=True).first.click()
    target.wait(page)
    took = time.perf_counter() - began
    page.close()
    return took


def _run_to_chart(context: BrowserContext, address: str) -> float:
    """Seconds from the click to a curve; returns when the run has ended, so that the next one finds its devices
    free."""
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
