"""The built site, opened from disk in a browser: what its search finds, and whether tables fit. `make docs` runs it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.e2e.conftest import ARGUMENTS, chromium

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

ROOT: Final = Path(__file__).resolve().parents[2]
FIRST: Final = {
    "batch size": "how-to/batch-and-rate.html",
    "learning rate": "how-to/batch-and-rate.html",
    "slow": "how-to/troubleshooting.html",
    "out of memory": "how-to/troubleshooting.html",
    "checkpoint": "concepts/training.html",
    "gpu": "how-to/gpus.html",
    "kill": "how-to/troubleshooting.html",
    "wandb": "how-to/scripts.html",
    "tensorboard": "how-to/scripts.html",
}
"""The page that a user looks for with these words."""
TOO_WIDE: Final = """() => {
  const column = document.querySelector(".md-content__inner") ?? document.querySelector("main");
  const style = getComputedStyle(column);
  const room = column.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  const tables = [...column.querySelectorAll("table")].map(
    one => [(one.closest(".wide") ?? one).offsetWidth - room, one.textContent.trim()]);
  return tables.filter(([over]) => over > 1).map(([over, text]) => `${over} px: ${text.slice(0, 60)}`);
}"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`SITE`, which `make docs` has just built, or a new one."""
    if given := os.environ.get("SITE"):
        return Path(given).resolve()
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=True, timeout=240)
    return folder


@pytest.fixture(scope="module")
def tab() -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        yield browser.new_page(viewport={"width": 1280, "height": 1000})
        browser.close()


def test_search_finds_the_page_for_users_first(site: Path, tab: Page) -> None:
    """From disk and without a network."""
    tab.context.set_offline(True)
    found = {}
    for words in FIRST:
        tab.goto((site / "index.html").as_uri(), wait_until="domcontentloaded")
        tab.locator("[data-md-component=search-query]").fill(words)
        first = tab.locator(".md-search-result__item a").first
        expect(first).to_be_attached(timeout=20_000)
        found[words] = (first.get_attribute("href") or "").partition("?")[0].removeprefix(f"{site.as_uri()}/")
    assert {words: page.partition("#")[0] for words, page in found.items()} == FIRST


def test_nothing_is_fetched_from_another_host(site: Path, tab: Page) -> None:
    asked: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    for page in ("index.html", "reference/api/asyncps.html"):
        tab.goto((site / page).as_uri())
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []


@pytest.mark.parametrize("width", [1280, 400])
def test_no_table_is_wider_than_its_column(site: Path, tab: Page, width: int) -> None:
    """In an exported notebook, a wide table scrolls in a box of its own, which is not."""
    tab.set_viewport_size({"width": width, "height": 1000})
    wide = {}
    pages = [path for path in sorted(site.rglob("*.html")) if "<table" in path.read_text(encoding="utf-8")]
    assert len(pages) > 40
    for path in pages:
        tab.goto(path.as_uri(), wait_until="domcontentloaded")
        if found := tab.evaluate(TOO_WIDE):
            wide[str(path.relative_to(site))] = found
    assert wide == {}
