"""The pictures of README and docs: the notebooks that ship, run for real, and every page of them in a real Chromium.

    python -m docs.generate.screenshots [--only pages|plan|search|forms] [--searched FOLDER] [--out docs]

Takes about twenty minutes on two cores: the experiments of `notebooks/first-steps.md` and the searches of
`notebooks/batch-size.md` are run in temporary workspaces, and exported for the gallery. `--searched` names a workspace
where the latter has been run. All but `forms` need an idle machine: pages show times, and where other processes use the
cores, asynchronous workers take turns unevenly, with other results.
"""

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil
from playwright.sync_api import Browser, Page, sync_playwright

from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments import catalogue
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.jobs import job_requests
from scalebook.training.jobs.job_folder import ENDED, JobFolder
from scalebook.training.notebook import store
from scalebook.training.notebook.export import as_html, gather
from scalebook.training.search import search_folder as searches
from scalebook.training.search import search_requests
from scalebook.training.search.map.map_pictures import map_figure
from scalebook.training.search.study.study_reader import read_study
from scalebook.training.tracking import RunReader, drawing
from tests.docs.blocks import DOCS, file_in
from tests.e2e.conftest import CHROMIUMS, ROOT, Served, end_supervisor, serve
from tests.e2e.test_journey import choose

DEADLINE_S = 2400.0
WIDTH, HEIGHT, TALLEST, PLAN_TALL = 1000, 900, 2400, 1500
SCALE = 1.6
"""Pixels of a picture for one of the page: a picture is 1,600 wide, and still to be read in a column of text."""
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--font-render-hinting=none"]  # hinted letters have uneven gaps
TURN_MS = 120_000
MOST_BUSY = 0.2
"""Cores that other processes may use while pictures are taken that need an idle machine."""
WATCHED_S = 5.0
FOLDER = "notebooks"
"""What pictures show instead of the path of the temporary workspace."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "docs")
    parser.add_argument("--only", choices=GROUPS)
    parser.add_argument("--searched", type=Path, help="a workspace where batch-size.md has been run")
    options = parser.parse_args()
    chosen = [options.only] if options.only else list(GROUPS)
    if any(GROUPS[name].needs_idle for name in chosen):
        refuse_busy(busy_cores())
    for name in chosen:
        group = GROUPS[name]
        _of(options.searched if name == "search" else None, group.notebook, group.take, options.out)


def busy_cores() -> float:
    """Cores that other processes have used in the last seconds."""
    return psutil.cpu_percent(WATCHED_S) / 100 * (psutil.cpu_count() or 1)


def refuse_busy(busy: float) -> None:
    """SystemExit with what to do, if other processes would change what the pictures show."""
    if busy > MOST_BUSY:
        others = ", ".join(name for name, group in GROUPS.items() if not group.needs_idle)
        raise SystemExit(
            f"screenshots: other processes use {busy:.1f} cores, so times, updates per second and the results of "
            "asynchronous workers in the pictures would be wrong. End those processes and try again, or take the "
            f"pictures that show none of these: --only {others}."
        )


def _of(folder: Path | None, notebook: str, take: Callable[[Browser, Served, Path], None], out: Path) -> None:
    """Serve a workspace with the notebook, a new one unless `folder` is given, and take its pictures."""
    with tempfile.TemporaryDirectory(prefix="scalebook-pictures-") as new:
        workspace = Workspace((folder or Path(new)).resolve()).create()
        if folder is None:
            shutil.copy(ROOT / "notebooks" / notebook, workspace.root)
        served = serve(workspace)
        try:
            with sync_playwright() as playwright:
                path = next(path for name in CHROMIUMS if (path := shutil.which(name)))
                browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
                take(browser, served, out)
        finally:
            served.end()
            end_supervisor(workspace)


def _searches(browser: Browser, served: Served, out: Path) -> None:
    """The maps of the notebook's searches, for documents, and the page of the first."""
    workspace = served.workspace
    description = catalogue.describe(workspace)
    notebook = store.read(workspace.root / "batch-size.md").notebook
    for cell in notebook.searches():
        folder = search_requests.of_cell(workspace, "batch-size.md", cell.name) or search_requests.start(
            workspace, cell.body, notebook.base(cell, description), name=cell.name, notebook="batch-size.md",
            cell=cell.name, description=description,
        )  # fmt: skip
        _wait(partial(_ended, folder))
        request, spec = folder.request(), folder.spec(description)
        drawn = map_figure(read_study(request.storage, request.study, spec), spec)
        assert drawn is not None
        drawing.save(drawn, out / "figures" / f"{cell.name}.png")
    first = search_requests.find(workspace, notebook.searches()[0].name)
    for scheme, suffix in (("light", ""), ("dark", "-dark")):
        with _opened(browser, served, f"/search?search={first.id}", scheme) as page:
            _taken(page, out / "screenshots" / f"search{suffix}.png")
            page.locator("[data-testid=stPlotlyChart]", has_text="batch size").last.screenshot(
                path=out / "screenshots" / f"map{suffix}.png"
            )
    _export(workspace, "batch-size.md", out)


def _export(workspace: Workspace, notebook: str, out: Path) -> None:
    """The page of the notebook in the gallery."""
    stored, reader = store.read(workspace.root / notebook), RunReader(workspace.tracking_uri())
    page = as_html(gather(workspace, reader, stored, catalogue.describe(workspace)))
    gallery = out / "gallery"
    gallery.mkdir(exist_ok=True)
    (gallery / f"{Path(notebook).stem}.html").write_text(page, encoding="utf-8")


def _ended(folder: searches.SearchFolder) -> bool:
    return folder.state() in searches.ENDED


def _pages(browser: Browser, served: Served, out: Path) -> None:
    out = out / "screenshots"
    jobs = _submit(served.workspace)
    pixelcnn = [job for job in jobs if "pixelcnn" in (job.request().cell or "")]
    _wait(lambda: any(job.progress() is not None and job.state() == "running" for job in jobs))
    time.sleep(4)
    _picture(browser, served, "/runs", out / "runs-live.png")
    _wait(lambda: all(job.state() in ENDED for job in jobs))
    asynchronous = next(job for job in pixelcnn if job.request().strategy == "AsyncPS")
    compared = ",".join(job.id for job in pixelcnn)
    _picture(browser, served, "/?notebook=first-steps", out / "notebook.png")
    _picture(browser, served, "/?notebook=first-steps", out / "notebook-dark.png", scheme="dark")
    _picture(browser, served, f"/runs?run={asynchronous.id}", out / "run.png")
    _picture(browser, served, "/runs", out / "runs.png")
    _picture(browser, served, f"/compare?runs={compared}&x=seconds", out / "compare.png")
    _export(served.workspace, "first-steps.md", out.parent)


def _submit(workspace: Workspace) -> list[JobFolder]:
    notebook = store.read(workspace.root / "first-steps.md").notebook
    description = catalogue.describe(workspace)
    made: list[JobFolder] = []
    for cell in notebook.experiments():
        made += job_requests.submit(
            workspace,
            Experiment.read(cell.config, description),
            seeds=cell.seeds(),
            notebook="first-steps.md",
            cell=cell.name,
        )
    return made


def _wait(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the runs have not ended within {DEADLINE_S:.0f} s")
        time.sleep(0.5)


def _plan(browser: Browser, served: Served, out: Path) -> None:
    """The answer of the planner, which measures an experiment."""
    with _opened(browser, served, "/plan?notebook=first-steps&cell=classifier-async-2") as page:
        page.locator(".st-key-plan-play button").click()
        page.get_by_role("heading", name="Answer").wait_for(timeout=TURN_MS)
        _taken(page, out / "screenshots" / "plan.png", PLAN_TALL)


def _forms(browser: Browser, served: Served, out: Path) -> None:
    """What the pages of docs/tutorial show before anything runs, pressed as they say."""
    out, root = out / "screenshots", served.workspace.root
    _picture(browser, served, "/compose?notebook=first-steps&cell=pixelcnn-async-2", out / "compose.png")
    (root / "sides.py").write_text(file_in(DOCS / "tutorial" / "own-model.md", "sides.py"), encoding="utf-8")
    _picture(browser, served, "/search?notebook=first-steps&experiment=classifier-async-2", out / "search-setup.png")
    with _opened(browser, served, "/?notebook=first-steps") as page:
        page.locator(".st-key-notebook-more button").click()
        page.get_by_role("menuitem", name="Use my own model").click()
        use = page.locator(".st-key-use-sides button")
        use.wait_for()
        _taken(page, out / "own-model.png", HEIGHT)
        use.click()
        page.get_by_role("button", name="Trust this folder").click()
        page.get_by_text("This folder wants to run its own code").wait_for(state="hidden", timeout=TURN_MS)
        page.goto(served.addresses.app + "/compose?notebook=first-steps")
        _settle(page)
        choose(page, "Model", "Side")
        _settle(page)
        choose(page, "Data", "Points")
        _taken(page, out / "own-compose.png")


class PictureGroup(NamedTuple):
    """Pictures that are taken together, of one notebook."""

    notebook: str
    take: Callable[[Browser, Served, Path], None]
    needs_idle: bool


GROUPS = {
    "pages": PictureGroup("first-steps.md", _pages, needs_idle=True),
    "plan": PictureGroup("first-steps.md", _plan, needs_idle=True),
    "search": PictureGroup("batch-size.md", _searches, needs_idle=True),
    "forms": PictureGroup("first-steps.md", _forms, needs_idle=False),
}


def _picture(browser: Browser, served: Served, path: str, file: Path, scheme: str = "light") -> None:
    """The whole page, up to TALLEST pixels, after its charts have been drawn."""
    with _opened(browser, served, path, scheme) as page:
        _taken(page, file)


@contextmanager
def _opened(browser: Browser, served: Served, path: str, scheme: str = "light") -> Iterator[Page]:
    with browser.new_context(
        viewport={"width": WIDTH, "height": HEIGHT},
        color_scheme="dark" if scheme == "dark" else "light",
        device_scale_factor=SCALE,
    ) as context:
        served.let_in(context)
        page = context.new_page()
        page.set_default_timeout(TURN_MS)
        page.add_init_script(f"window.workspaceRoot = {json.dumps(str(served.workspace.root))}")
        page.goto(served.addresses.app + path)
        _settle(page)
        yield page


WITHOUT_PATHS = """folder => {
  const nodes = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
  while (nodes.nextNode()) {
    const node = nodes.currentNode
    node.nodeValue = node.nodeValue.replaceAll(window.workspaceRoot, folder)
  }
}"""


def _taken(page: Page, file: Path, tallest: int = TALLEST) -> None:
    _settle(page)
    tall = int(page.evaluate("document.querySelector('.stMain').scrollHeight"))
    page.set_viewport_size({"width": WIDTH, "height": max(HEIGHT, min(tall, tallest))})
    page.wait_for_timeout(1500)
    page.evaluate(WITHOUT_PATHS, FOLDER)
    assert "/tmp/" not in page.inner_text("body"), f"{file.name} would show the path of a temporary folder"
    page.screenshot(path=file)
    print(f"{file.name}: {file.stat().st_size // 1024} kB", flush=True)


def _settle(page: Page) -> None:
    page.locator(".stMainBlockContainer").wait_for(timeout=TURN_MS)
    page.wait_for_timeout(5000)
    page.locator("[data-testid=stSpinner]").wait_for(state="detached", timeout=TURN_MS)
    page.wait_for_timeout(1500)


if __name__ == "__main__":
    main()
