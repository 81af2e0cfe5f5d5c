"""Who comes without the address, and what a page of somebody else can do in a browser that has opened it."""

import http.server
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from scalebook.app.serving.child import LOOPBACK
from tests.e2e.conftest import REBOUND, Served

pytestmark = pytest.mark.thorough

TIMEOUT_MS = 30_000
LOST = "Scalebook does not know this browser"
TRY = """async ({app, mlflow}) => {
  const tried = {};
  const attempt = async (name, make) => {
    try { const answer = await make(); tried[name] = answer.type === "opaque" ? "opaque" : answer.status; }
    catch (error) { tried[name] = "failed"; }
  };
  const query = {method: "POST", credentials: "include", body: "{}"};
  await attempt("reads a page", () => fetch(app + "/", {credentials: "include"}));
  await attempt("searches", () => fetch(mlflow + "/ajax-api/2.0/mlflow/experiments/search", query));
  await attempt("asks GraphQL", () => fetch(mlflow + "/graphql", query));
  const socket = new WebSocket(app.replace("http", "ws") + "/_stcore/stream", "streamlit");
  tried["opens the socket"] = await new Promise(done => {
    socket.onopen = () => done("open"); socket.onclose = () => done("failed");
  });
  return tried;
}"""
BLIND = """async ({app, mlflow}) => {
  const load = (tag, source) => new Promise(done => {
    const made = document.createElement(tag);
    made.onload = made.onerror = () => done();
    made.src = source;
    document.body.append(made);
  });
  await fetch(mlflow + "/graphql", {method: "POST", mode: "no-cors", credentials: "include", body: "{}"});
  await load("iframe", app + "/");
  await load("iframe", mlflow + "/");
  await load("script", mlflow + "/ajax-api/2.0/mlflow/experiments/search?max_results=5");
  await load("img", mlflow + "/get-artifact?path=x&run_uuid=y");
}"""


@pytest.fixture
def stranger() -> Iterator[str]:
    """Another program of this machine with a page; its address. The browser sends it to the same site as ours."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>Prizes</title><body>You have won.</body>")

        def log_message(self, *_: object) -> None:
            """Nothing to tell."""

    server = http.server.ThreadingHTTPServer((LOOPBACK, 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://{LOOPBACK}:{server.server_address[1]}"
    server.shutdown()
    thread.join(10)
    server.server_close()


def addresses(served: Served) -> dict[str, str]:
    assert served.addresses.mlflow is not None
    return {"app": served.addresses.app, "mlflow": served.addresses.mlflow}


def sees_the_app(page: Page) -> None:
    expect(page.get_by_role("button", name="New experiment")).to_be_visible(timeout=TIMEOUT_MS)


def sees_mlflow(page: Page) -> None:
    expect(page.get_by_role("link", name="Experiments").first).to_be_visible(timeout=TIMEOUT_MS)


def test_the_printed_address_opens_the_app_and_mlflow_and_who_has_lost_it_is_told_where_it_is(
    new_context: Callable[[], BrowserContext], served: Served, tmp_path: Path
) -> None:
    page = new_context().new_page()
    page.goto(served.access.opening(served.addresses.app))
    sees_the_app(page)
    assert page.url == f"{served.addresses.app}/"
    page.reload()
    sees_the_app(page)
    token = str(served.access.token)
    for address, sees in ((served.addresses.app, sees_the_app), (str(served.addresses.mlflow), sees_mlflow)):
        lost = new_context().new_page()
        lost.goto(address)
        expect(lost.get_by_role("heading", name=LOST)).to_be_visible()
        expect(lost.get_by_text("scalebook ui FOLDER --address")).to_be_visible()
        lost.screenshot(path=tmp_path / "lost.png")
        field = lost.get_by_label("Or enter the token")
        field.fill("not this one")
        lost.get_by_role("button", name="Open").click()
        expect(lost.get_by_role("heading", name="This is not the right token")).to_be_visible()
        field.fill(token)
        lost.get_by_role("button", name="Open").click()
        sees(lost)
        assert token not in lost.url
        lost.context.close()
    page.goto(f"{served.addresses.mlflow}/#/experiments")
    sees_mlflow(page)


def test_a_page_of_another_origin_gets_nothing(page: Page, served: Served, stranger: str) -> None:
    page.goto(served.addresses.app)
    sees_the_app(page)
    ours = page.evaluate(TRY, addresses(served))
    assert (ours["reads a page"], ours["opens the socket"]) == (200, "open")
    page.goto(stranger)
    asked: set[str] = set()
    answers: list[tuple[str, int]] = []
    page.on("request", lambda one: asked.add(one.url.split("?")[0]))
    page.on("response", lambda one: answers.append((one.url, one.status)))
    tried = page.evaluate(TRY, addresses(served))
    assert set(tried.values()) == {"failed"}, tried
    page.evaluate(BLIND, addresses(served))
    app, mlflow = addresses(served).values()
    tried_urls = ("/", "/graphql", "/ajax-api/2.0/mlflow/experiments/search", "/get-artifact")
    assert {f"{app}/", *(mlflow + path for path in tried_urls)} <= asked
    assert {one for one in answers if one[1] != 403 and not one[0].startswith(stranger)} == set()
    assert len([one for one in answers if one[1] == 403]) >= 3, answers  # those that the browser itself let through
    page.goto(served.addresses.app)  # and the person goes on
    sees_the_app(page)


def test_a_name_that_was_made_to_lead_here_shows_nothing(page: Page, served: Served) -> None:
    for address in addresses(served).values():
        port = address.rsplit(":", 1)[1]
        page.context.add_cookies(
            [{"name": served.access.cookie, "value": str(served.access.token), "url": f"http://{REBOUND}:{port}"}]
        )
        answer = page.goto(f"http://{REBOUND}:{port}/")
        assert answer is not None
        assert answer.status == 403
        expect(page.locator("body")).to_contain_text(f"does not accept the host name {REBOUND}:{port}")
