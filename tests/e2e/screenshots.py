"""Every page, what opens on it, and the exported file, at three widths in both themes, to be looked at by a person.

    python -m tests.e2e.screenshots FOLDER [--only NAME ...] [--widths 400 1280 1920] [--themes light dark]

Nothing is trained: the pages show `tests.e2e.gallery`. What axe-core finds serious is printed.
"""

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from scalebook.training.base.workspace import Workspace
from tests.e2e.audit import SERIOUS, findings
from tests.e2e.conftest import ARGUMENTS, Served, chromium, end_supervisor, serve
from tests.e2e.gallery import OPENED, Gallery, ask_for_trust, exported, filled

WIDTHS = (400, 1280, 1920)
HEIGHTS = {400: 860, 1280: 800, 1920: 1080}
TALLEST = 3000
EXPORTED = "exported.html"
PRINTED_AT = 1280  # pixels; once a theme is enough
PAPER = 688  # pixels of A4 between its margins
TRUST = "trust"  # with it, the workspace has a module of its own
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
                _all(served, _views(gallery, workspace, told.only), told.themes, told.widths, told.folder)
            finally:
                served.end()
                end_supervisor(workspace)


@dataclass(frozen=True)
class View:
    """What is looked at: a name that is good for a file, where it is, and what is pressed there."""

    name: str
    address: str
    presses: Sequence[str] = ()


def _views(gallery: Gallery, workspace: Workspace, only: Sequence[str]) -> list[View]:
    """Pages, what opens on them, and the exported file; with the last of them, the folder asks to be trusted."""
    addresses = gallery.addresses()
    file = workspace.root / EXPORTED
    file.write_text(exported(workspace), encoding="utf-8")
    views = [View(name, address) for name, address in addresses.items()]
    views += [View(name, addresses[page], presses) for name, (page, presses) in OPENED.items()]
    views += [View("export", file.as_uri()), View(TRUST, addresses["notebook"])]
    return [view for view in views if view.name in (only or [view.name])]


def _all(served: Served, views: list[View], themes: list[str], widths: list[int], folder: Path) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        known = [view for view in views if view.name != TRUST]
        for asked in (known, [view for view in views if view.name == TRUST]):
            if asked and asked is not known:
                ask_for_trust(served.workspace)
            for theme in themes if asked else []:
                for width in widths:
                    _take(browser, served, asked, theme, width, folder)


def _take(browser: Browser, served: Served, views: Sequence[View], theme: str, width: int, folder: Path) -> None:
    with look(browser, theme, width) as context:
        served.let_in(context)
        page = context.new_page()
        for view in views:
            height = HEIGHTS.get(width, 900)
            page.set_viewport_size({"width": width, "height": height})
            if view.address.startswith("file:"):
                page.goto(view.address)
                page.screenshot(path=folder / f"{view.name}-{width}-{theme}.png", full_page=True)
                if width == PRINTED_AT:
                    _print(page, folder / f"{view.name}-printed-{theme}")
                continue
            page.goto(served.addresses.app + view.address)
            settle(page)
            for press in view.presses:
                _press(page, press)
                settle(page)
            if view.name.startswith("dialog"):
                page.get_by_role("dialog").wait_for(timeout=60_000)
                settle(page)
            if not view.presses or page.get_by_role("dialog").count() == 0:
                tall = int(page.evaluate("document.querySelector('.stMain').scrollHeight"))
                page.set_viewport_size({"width": width, "height": max(height, min(tall + 60, TALLEST))})
                settle(page)
            page.screenshot(path=folder / f"{view.name}-{width}-{theme}.png")
            for finding in findings(page):
                if finding.impact in SERIOUS:
                    print(f"{view.name}, {width} pixels, {theme}: {finding}", flush=True)
        print(f"{len(views)} views, {width} pixels, {theme}", flush=True)


def _press(page: Page, press: str) -> None:
    """A selector, or `selector@x,y` for a place on what it finds, in pixels."""
    selector, _, place = press.partition("@")
    found = page.locator(selector).filter(visible=True).first
    if not place:
        found.click()
        return
    x, y = map(float, place.split(","))
    found.scroll_into_view_if_needed()
    box = found.bounding_box()
    assert box is not None, selector
    page.mouse.move(box["x"] + x + 2, box["y"] + y)  # a grid looks where the mouse is before it takes a click,
    page.wait_for_timeout(300)
    page.mouse.click(box["x"] + x, box["y"] + y)  # and lies below what takes its scrolling


def _print(page: Page, path: Path) -> None:
    """As a PDF, and as a picture of what is on its paper."""
    page.pdf(path=path.with_suffix(".pdf"), format="A4")
    page.emulate_media(media="print")
    page.set_viewport_size({"width": PAPER, "height": HEIGHTS[PRINTED_AT]})
    page.screenshot(path=path.with_suffix(".png"), full_page=True)
    page.emulate_media(media="screen")


def look(browser: Browser, theme: str, width: int) -> BrowserContext:
    """A browser of that width whose person prefers that theme."""
    size = {"width": width, "height": HEIGHTS.get(width, 900)}
    return browser.new_context(viewport=size, color_scheme="dark" if theme == "dark" else "light")  # type: ignore[arg-type]


def settle(page: Page) -> None:
    """Wait until the page is drawn."""
    page.locator("h1").first.wait_for(timeout=60_000)
    page.locator("[data-test-script-state=notRunning]").wait_for(timeout=60_000)
    page.locator("[data-testid=stAppSkeleton], [data-testid=stSpinner]").first.wait_for(
        state="detached", timeout=60_000
    )
    page.evaluate(QUIET, SETTLED_MS)


if __name__ == "__main__":
    main()
