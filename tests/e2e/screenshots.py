"""Every page at three widths in both themes, to be looked at by a person.

    python -m tests.e2e.screenshots FOLDER [--only NAME ...] [--widths 400 1280 1920] [--themes light dark]

Nothing is trained: the pages show `tests.e2e.gallery`.
"""

import argparse
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from scalebook.training.workspace import Workspace
from tests.e2e.conftest import ARGUMENTS, Served, chromium, end_supervisor, serve
from tests.e2e.gallery import filled

WIDTHS = (400, 1280, 1920)
HEIGHTS = {400: 860, 1280: 800, 1920: 1080}
TALLEST = 3000
SETTLED_MS = 500
"""Without a change on the page for that long, it is taken to be drawn."""
QUIET = """ms => new Promise(done => {
  const end = Date.now() + 6000;  // some never rest
  let last = Date.now();
  const seen = new MutationObserver(() => { last = Date.now(); });
  seen.observe(document.body, {childList: true, subtree: true, attributes: true});
  const look = () => Date.now() - last > ms || Date.now() > end ? (seen.disconnect(), done()) : setTimeout(look, 100);
  look();
})"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", default=[], help="names of pages; all unless told")
    parser.add_argument("--widths", nargs="*", type=int, default=list(WIDTHS))
    parser.add_argument("--themes", nargs="*", choices=["light", "dark"], default=["light", "dark"])
    told = parser.parse_args()
    told.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="scalebook-gallery-") as folder:
        workspace = Workspace(Path(folder).resolve()).create()
        with filled(workspace) as gallery:
            served = serve(workspace)
            try:
                pages = {name: path for name, path in gallery.addresses().items() if name in (told.only or [name])}
                _all(served, pages, told.themes, told.widths, told.folder)
            finally:
                served.end()
                end_supervisor(workspace)


def _all(served: Served, pages: dict[str, str], themes: list[str], widths: list[int], folder: Path) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        for theme in themes:
            for width in widths:
                _take(browser, served, pages, theme, width, folder)


def _take(browser: Browser, served: Served, pages: dict[str, str], theme: str, width: int, folder: Path) -> None:
    with look(browser, theme, width) as context:
        served.let_in(context)
        page = context.new_page()
        for name, path in pages.items():
            page.set_viewport_size({"width": width, "height": HEIGHTS.get(width, 900)})
            page.goto(served.addresses.app + path)
            settle(page)
            tall = int(page.evaluate("document.querySelector('.stMain').scrollHeight"))
            page.set_viewport_size({"width": width, "height": max(HEIGHTS.get(width, 900), min(tall + 60, TALLEST))})
            settle(page)
            page.screenshot(path=folder / f"{name}-{width}-{theme}.png")
        print(f"{len(pages)} pages, {width} pixels, {theme}", flush=True)


def look(browser: Browser, theme: str, width: int) -> BrowserContext:
    """A browser of that width whose person prefers that theme."""
    size = {"width": width, "height": HEIGHTS.get(width, 900)}
    return browser.new_context(viewport=size, color_scheme="dark" if theme == "dark" else "light")  # type: ignore[arg-type]


def settle(page: Page) -> None:
    """Wait until the page is drawn."""
    page.locator(".stMainBlockContainer").wait_for(timeout=60_000)
    page.locator("[data-testid=stAppSkeleton], [data-testid=stSpinner]").first.wait_for(
        state="detached", timeout=60_000
    )
    page.evaluate(QUIET, SETTLED_MS)


if __name__ == "__main__":
    main()
