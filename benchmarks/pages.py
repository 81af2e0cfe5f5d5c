"""How fast the pages are with 5,000 runs and 100 searches: first paint of each, and Run to the first point of a chart.

    python -m benchmarks.pages [--runs 5000] [--searches 100] [--repeats 3] [--only WORD]

Starts the app on a temporary workspace, with a real Chromium in front of it, 1280 x 1000. First paint is from the
navigation to the frame that shows what the table names, in a new tab each time, after one visit to warm server and
browser. The page itself takes the times, frame by frame, since a query from outside has to wait for the page. Most of
it is Streamlit's own start in the tab, which ends with the menu. A chart counts when it is interactive. In an open tab
the time is from a click in the menu. All pages are visited in turn, so that a busy minute slows each of them. Read the
ratios to a notebook with one note (for `jobs list`, to 50 jobs). Takes 20 minutes.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from playwright.sync_api import BrowserContext, Page, sync_playwright
from playwright.sync_api import TimeoutError as PlaywrightTimeout

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
LONG = 60
"""Cells of the long notebook: notes, experiments with two runs, comparisons."""
SEEDS, ENDED = 240, 50
"""Of the experiment with many runs: all, and those that have finished; the others wait."""
FEW_JOBS = 50
ONE_NOTE = "notebook, one note"
AT_MOST = {"notebook, 60 cells": 2.5, "notebook, 240 seeds": 1.5, "runs": 2.5}
"""The goals, as ratios to ONE_NOTE."""
LIST_AT_MOST = 2.0
IN_THE_MENU = {"Notebook": "notebook, 6 experiments", "Runs": "runs", "Search": "searches",
               "Compare": "compare, nothing chosen"}  # fmt: skip
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
    options.add_argument("--runs", type=int, default=5000)
    options.add_argument("--searches", type=int, default=100, help="with 1, 2, 3, ... trials")
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--only", default="", help="measure only first paint of pages whose name has this word")
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="scalebook-bench-") as folder:
        workspace = Workspace(Path(folder)).create()
        filled = fill(workspace, given.runs, given.searches)
        if not given.only:
            _jobs_lists(workspace, given.repeats)
        _many_seeds(workspace)
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
    (workspace.root / "one.md").write_text("---\ntitle: One\n---\nOne note.\n", encoding="utf-8")
    _long_notebook(workspace)
    print(f"{runs} runs and {search_count} searches recorded in {time.perf_counter() - began:.0f} s")
    return Filled([ids[0], ids[NOTEBOOKS]], folders[-1])


def _long_notebook(workspace: Workspace) -> None:
    cells: list[str] = []
    for i in range(LONG):
        if i % 3 == 0:
            cells.append(f"Note {i}: what the **next** experiment shows.\n")
        elif i % 6 == 5:
            cells.append(f"```yaml comparison=last-{i}\nruns: [experiment-{i - 1}, experiment-{i - 4}]\n```\n")
        else:
            setting = config(lr=0.001 * (i + 1))
            same = config_hash(Experiment.read(setting, catalogue.describe(workspace)))
            for seed in (1, 2):
                record(workspace, cell=f"experiment-{i}", notebook="long.md", seed=seed, config_hash=same)
            cells.append(f"```yaml experiment=experiment-{i}\n{yaml.dump({'repeats': 2, 'config': setting})}```\n")
    (workspace.root / "long.md").write_text("---\ntitle: Long\n---\n" + "\n".join(cells), encoding="utf-8")


def _many_seeds(workspace: Workspace) -> None:
    """One experiment whose runs wait for a second node, so that none begins."""
    same = config_hash(Experiment.read(config(), catalogue.describe(workspace)))
    for seed in range(1, SEEDS + 1):
        state = "finished" if seed <= ENDED else "waiting"
        job = record(workspace, cell="many", notebook="seeds.md", seed=seed, config_hash=same, state=state)
        if state == "waiting":
            job.write(replace(job.request(), nodes=2))
    cell = yaml.dump({"repeats": SEEDS, "config": config()})
    (workspace.root / "seeds.md").write_text(
        f"---\ntitle: Seeds\n---\n```yaml experiment=many\n{cell}```\n", encoding="utf-8"
    )


def _jobs_lists(workspace: Workspace, repeats: int) -> None:
    """Print what `jobs list` takes with all jobs and with a few. The first list of each, which is not counted, keeps
    the lines of ended jobs."""
    few = Workspace(workspace.root / "few").create()
    for seed in range(FEW_JOBS):
        record(few, seed=seed)
    took: dict[Workspace, list[float]] = {few: [], workspace: []}
    for _ in range(repeats + 1):
        for each, times in took.items():
            began = time.perf_counter()
            command = [sys.executable, "-m", "scalebook", "jobs", "list"]
            environment = {**os.environ, "SCALEBOOK_WORKSPACE": str(each.root)}
            subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, timeout=120)
            times.append(time.perf_counter() - began)
    medians = [statistics.median(times[1:]) for times in took.values()]
    ratio = medians[1] / medians[0]
    print(
        f"`jobs list`: {medians[0]:.2f} s with {FEW_JOBS} jobs, {medians[1]:.2f} s with all: {ratio:.1f} times, "
        f"{_verdict(ratio, LIST_AT_MOST)}"
    )


def _verdict(ratio: float, at_most: float | None) -> str:
    return "" if at_most is None else f"at most {at_most:g}: {'met' if ratio <= at_most else 'MISSED'}"


def views(filled: Filled) -> dict[str, View]:
    """Each page by its name, and its charts as separate views."""
    one, two, search = f"/runs?run={filled.runs[0]}", ",".join(filled.runs), f"/search?search={filled.search.id}"
    setup = "/search?notebook=first-steps&experiment=experiment-0"
    plots = 3 + 1  # a chart has three pictures; the fourth is the first of the second chart
    last = f"last-{LONG - 1}"
    return {
        ONE_NOTE: View("/?notebook=one", "the note", ".st-key-document [data-testid=stMarkdownContainer]"),
        "notebook, 60 cells": View("/?notebook=long", "names of all cards", ".sb-name", LONG - LONG // 3),
        "its last cell": View(
            f"/?notebook=long&cell={last}", "the last cell's chart", f".st-key-cell-comparison-{last} {CHART}"
        ),
        "notebook, 240 seeds": View("/?notebook=seeds", "the table", "table.sb"),
        "notebook, 6 experiments": View("/?notebook=first-steps", "names of all six", ".sb-name", CELLS),
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
    """Print the table of new tabs: all pages in turn, again and again."""
    visits: dict[str, list[Visit]] = {name: [] for name in pages if name == ONE_NOTE or only in name}
    for _ in range(repeats + 1):
        for name, seen in visits.items():
            seen.append(_visit(context, app, pages[name]))
    wholes = {name: [visit.menu_s + visit.after_s for visit in seen[1:]] for name, seen in visits.items()}
    one_s = statistics.median(wholes[ONE_NOTE])
    print(
        "\n" + row("first paint in a new tab", "what is there", "menu, s", "all, s", "range, s", "x one note", "goal")
    )
    print("|---" * 7 + "|")
    for name, times in wholes.items():
        menu_s, whole_s = statistics.median(visit.menu_s for visit in visits[name][1:]), statistics.median(times)
        seconds = (f"{menu_s:.2f}", f"{whole_s:.2f}", f"{min(times):.2f} – {max(times):.2f}")
        goal = _verdict(whole_s / one_s, AT_MOST.get(name))
        print(row(name, pages[name].what, *seconds, f"{whole_s / one_s:.2f}", goal), flush=True)


def _visit(context: BrowserContext, app: str, view: View) -> Visit:
    """Open a view in a new tab."""
    page = context.new_page()
    selectors = {"menu": [MENU, 1], "content": [view.selector, view.count]}
    page.add_init_script(f"{PAINTED}({json.dumps(selectors)})")
    page.goto(app + view.path, wait_until="commit")
    try:
        page.wait_for_function(ALL_PAINTED, timeout=TIMEOUT_MS)
    except PlaywrightTimeout as error:
        raise TimeoutError(f"{view.path} has not shown {view.what}") from error
    painted_s = page.evaluate("window.painted")
    page.close()
    return Visit(painted_s["menu"], max(0.0, painted_s["content"] - painted_s["menu"]))


def _in_an_open_tab(context: BrowserContext, address: str, pages: dict[str, View], repeats: int) -> None:
    print("\n| in an open tab | median s | range s |\n|---|---|---|")
    for link, target in IN_THE_MENU.items():
        times = [_by_menu(context, address, link, pages[target]) for _ in range(repeats + 1)][1:]
        _print(f"{target}, by a click in the menu", times)
    _print("click on Run to the first point on the chart", [_run_to_chart(context, address) for _ in range(repeats)])


def _print(name: str, times: list[float]) -> None:
    print(f"| {name} | {statistics.median(times):.2f} | {min(times):.2f} – {max(times):.2f} |", flush=True)


def _by_menu(context: BrowserContext, address: str, link: str, target: View) -> float:
    """Seconds from a click in the menu of a tab that shows another page."""
    page = context.new_page()
    page.goto(f"{address}/compare" if link != "Compare" else f"{address}/runs")
    page.get_by_role("link", name="Runs", exact=True).first.wait_for(state="visible", timeout=TIMEOUT_MS)
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
