"""How fast the page of a search is with 1,000 trials: a tick of its live head, each tab, the size of each figure.

    python -m benchmarks.search_page [--trials 1000] [--repeats 9] [--no-browser]

The trials come from a formula (tests/app/searches.py) and are stored in a real study in a journal. Server time is the
run of a fragment within Streamlit, which reads the study again, with one trial more each time; the first run of each is
left out, because it loads libraries. In a real Chromium: from a click on a tab to its chart.
"""

import argparse
import importlib
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright
from streamlit.testing.v1 import AppTest

from benchmarks.machine import Others
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments import catalogue
from scalebook.training.search.search_folder import SearchFolder
from scalebook.training.search.study.study import Study
from scalebook.training.search.study.trials import TrialRecord
from tests.app import searches
from tests.e2e.conftest import CHROMIUMS, end_supervisor, serve

TABS = ("Map", "Curves", "Parallel coordinates", "Importance", "Pareto", "Table")
HEAD_S, TAB_S, PAYLOAD_BYTES = 0.1, 0.4, 1_500_000  # what is asked for
TIMEOUT_MS = 60_000
TOOK: list[tuple[float, float]] = []
"""Seconds and CPU seconds of each fragment run; the script below appends."""

SCRIPT = """
import time
from pathlib import Path
from scalebook.app import resources
from scalebook.app.search import live
from benchmarks import search_page
from scalebook.training.search.search_folder import SearchFolder
folder = SearchFolder(Path({path!r}))
resources._search_records.clear()
resources._search_importance.clear()
began, worked = time.perf_counter(), time.thread_time()
{call}
search_page.TOOK.append((time.perf_counter() - began, time.thread_time() - worked))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--no-browser", action="store_true")
    options = parser.parse_args()
    others = Others()
    with tempfile.TemporaryDirectory(prefix="scalebook-bench-") as root:
        workspace = Workspace(Path(root)).create()
        os.environ["SCALEBOOK_WORKSPACE"] = root
        catalogue.describe(workspace)
        spec = searches.spec(trials=options.trials)
        records = searches.records(spec, options.trials + 8 * (options.repeats + 2))
        began = time.perf_counter()
        folder = searches.folder(workspace, spec, records[: options.trials])
        print(f"{options.trials} trials told to a study in {time.perf_counter() - began:.1f} s")
        study = Study.open(folder.request().storage, folder.request().study, spec)
        print("\n| server time | median ms | range ms | processor ms | figures, kB | wanted |\n" + "|---" * 6 + "|")
        more = iter(records[options.trials :])
        _server("a tick of the head", "live._head(folder, False)", folder, study, more, options.repeats, HEAD_S)
        for tab in TABS:
            _server(f"tab {tab}", "live._charts(folder)", folder, study, more, options.repeats, TAB_S, tab)
        if not options.no_browser:
            _browser(workspace, folder, options.repeats)
    print(f"\n{others.sentence()}")


def _server(
    name: str, call: str, folder: SearchFolder, study: Study, more: Any, repeats: int, wanted_s: float, tab: str = ""
) -> None:
    """Time `repeats` runs of a fragment, after one that does not count; one more trial ends before each."""
    took = importlib.import_module("benchmarks.search_page").TOOK  # which this module is not when it is the command
    took.clear()
    app = AppTest.from_string(SCRIPT.format(path=str(folder.path), call=call), default_timeout=120)
    if tab:
        app.query_params["view"] = tab
    for _ in range(repeats + 1):
        record: TrialRecord = next(more)
        searches.tell(study, [record])
        app.run()
        assert not app.exception, app.exception[0].value
    times = [1000 * seconds for seconds, _ in took[1:]]
    worked = statistics.median(1000 * seconds for _, seconds in took[1:])
    sizes = [len(element.proto.spec) for element in app.get("plotly_chart")]
    fine = statistics.median(times) < 1000 * wanted_s and max(sizes, default=0) < PAYLOAD_BYTES
    print(
        f"| {name} | {statistics.median(times):.0f} | {min(times):.0f} – {max(times):.0f} | {worked:.0f} "
        f"| {', '.join(f'{size / 1000:.0f}' for size in sizes) or '–'} "
        f"| {1000 * wanted_s:.0f} ms, {PAYLOAD_BYTES / 1e6:.1f} MB: {'met' if fine else 'MISSED'} |",
        flush=True,
    )


def _browser(workspace: Workspace, folder: SearchFolder, repeats: int) -> None:
    served = serve(workspace)
    try:
        with sync_playwright() as playwright:
            path = next(path for name in CHROMIUMS if (path := shutil.which(name)))
            flags = ["--no-sandbox", "--disable-gpu", "--use-gl=swiftshader", "--enable-unsafe-swiftshader"]
            browser = playwright.chromium.launch(executable_path=path, args=flags)
            page = browser.new_page(viewport={"width": 1280, "height": 1000})
            served.let_in(page.context)
            print("\n| in Chromium, from a click on a tab to what it shows | median s | range s |\n|---|---|---|")
            page.goto(f"{served.addresses.app}/search?search={folder.id}&view=Importance")
            _shown(page, "Importance")
            for tab in ("Map", "Curves", "Parallel coordinates", "Pareto", "Table"):
                times = [_click(page, tab) for _ in range(repeats + 1)][1:]
                print(f"| {tab} | {statistics.median(times):.2f} | {min(times):.2f} – {max(times):.2f} |", flush=True)
    finally:
        served.end()
        end_supervisor(workspace)


SHOWS = {
    "Map": ".st-key-search-map .scatterlayer .point",
    "Curves": ".st-key-search-curves .scatterlayer .trace",
    "Parallel coordinates": ".st-key-search-parallel .gl-container canvas, .st-key-search-parallel .parcoords",
    "Importance": ".st-key-search-importance .barlayer .point",
    "Pareto": ".st-key-search-pareto .scatterlayer .point",
    "Table": "[data-testid=stDataFrame] canvas",
}


def _shown(page: Page, tab: str) -> None:
    page.locator(SHOWS[tab]).first.wait_for(state="attached", timeout=TIMEOUT_MS)


def _click(page: Page, tab: str) -> float:
    """Seconds from a click on a tab to its chart; starts from the tab of bars, which is cheap to leave."""
    page.get_by_role("tab", name="Importance").click()
    _shown(page, "Importance")
    page.wait_for_timeout(300)
    began = time.perf_counter()
    page.get_by_role("tab", name=tab).click()
    _shown(page, tab)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
