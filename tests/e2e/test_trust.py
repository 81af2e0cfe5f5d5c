"""A stranger's folder in the browser: what is fetched and imported before the person trusts it, and after."""

import http.server
import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from scalebook.app.serving.child import LOOPBACK
from scalebook.training.base.trust import trusted, withdraw
from tests.e2e.conftest import Served
from tests.training.benches import wait_for

TIMEOUT_MS = 60_000
NOT_FETCHED = "Pictures from other sites are blocked"
QUESTION = "This folder wants to run its own code"
MINE = "from pathlib import Path\nPath(__file__).with_name('module-ran').touch()\n"


@pytest.fixture
def elsewhere() -> Iterator[tuple[str, list[str]]]:
    """A server with pictures, and the paths that it was asked for."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing to tell."""

    with http.server.ThreadingHTTPServer((LOOPBACK, 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{LOOPBACK}:{server.server_address[1]}", asked
        server.shutdown()


@pytest.mark.thorough
def test_nothing_is_fetched_or_imported_before_the_person_trusts_the_folder(
    page: Page, served: Served, elsewhere: tuple[str, list[str]]
) -> None:
    address, asked = elsewhere
    root = served.workspace.root
    by_reference = f"![b][r]\n\n[r]: {address}/b.png"
    (root / "pictures.md").write_text(f"# Pictures\n\n![a]({address}/a.png)\n\n{by_reference}\n", encoding="utf-8")
    (root / "scalebook.toml").write_text('modules = ["a_strangers"]', encoding="utf-8")
    (root / "a_strangers.py").write_text(MINE, encoding="utf-8")
    try:
        page.goto(f"{served.addresses.app}/?notebook=pictures")
        expect(page.get_by_text(NOT_FETCHED)).to_be_visible(timeout=TIMEOUT_MS)
        expect(page.get_by_text(QUESTION)).to_be_visible()
        expect(page.locator(".sb-code")).to_contain_text("module a_strangers, from", timeout=TIMEOUT_MS)
        assert asked == []
        assert not (root / "module-ran").exists()
        page.get_by_role("button", name="Trust this folder").click(timeout=TIMEOUT_MS)
        expect(page.get_by_text(QUESTION)).to_be_hidden(timeout=TIMEOUT_MS)
        assert trusted(served.workspace)
        with page.expect_request(f"{address}/b.png", timeout=TIMEOUT_MS):
            page.reload()
        expect(page.get_by_text(NOT_FETCHED)).to_be_hidden(timeout=TIMEOUT_MS)
        wait_for(lambda: set(asked) == {"/a.png", "/b.png"}, "the pictures to be fetched")
    finally:
        withdraw(served.workspace)
        for name in ("pictures.md", "scalebook.toml", "a_strangers.py", "module-ran"):
            (root / name).unlink(missing_ok=True)
