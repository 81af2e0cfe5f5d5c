import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import uvicorn

from scalebook.app.serving.access import Access
from scalebook.app.serving.child import LOOPBACK, free_port
from scalebook.app.serving.gateway import Guard
from scalebook.training.base.workspace import Workspace
from tests.app.serving.asking import ACCEPTED, Answer, ask, handshake

HEALTH = "/health"
PROXY = "lab.example.org"
TUNNEL = "localhost:9000"


async def behind(scope: Any, receive: Any, send: Any) -> None:
    """The server behind the guard: says what it was asked; a policy and a frame rule of its own on each response."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.close", "code": 1000})
    elif scope["type"] == "http":
        headers = [(b"content-security-policy", b"default-src 'self'"), (b"x-frame-options", b"ALLOWALL")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": f"{scope['method']} {scope['path']}".encode()})


class Running:
    def __init__(self, access: Access, reserved: Callable[[], bool] = lambda: False) -> None:
        self.access, self.port = access, free_port(24000)
        guard = Guard(behind, access, self.port, HEALTH, reserved)
        config = uvicorn.Config(guard, host=LOOPBACK, port=self.port, lifespan="off", log_level="error")
        config.timeout_graceful_shutdown = 2  # s; a client that went in the middle of a handshake is not waited for
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._server.serve()), daemon=True)
        self._thread.start()
        deadline = time.monotonic() + 10
        while not self._server.started:
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.01)

    def end(self) -> None:
        self._server.should_exit = True
        self._thread.join(20)
        assert not self._thread.is_alive(), "the server did not end"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    found = Running(Access.of(Workspace(tmp_path_factory.mktemp("guarded")), (PROXY, TUNNEL)))
    yield found
    found.end()


@pytest.fixture(scope="module")
def tokenless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    found = Running(Access.of(Workspace(tmp_path_factory.mktemp("tokenless")), with_token=False))
    yield found
    found.end()


def as_submitted(answer: Answer, path: str, token: str) -> str:
    """The address that the form of the refusal asks for, where this token is entered."""
    fields = re.findall('<input type="hidden" name="(.*?)" value="(.*?)">', answer.body)
    return f"{path}?{urlencode([*((unescape(name), unescape(value)) for name, value in fields), ('token', token)])}"


def known(server: Running, path: str = "/", method: str = "GET", **headers: str) -> Answer:
    """Asked with the cookie of a browser that has opened the address."""
    return ask(server.port, path, method, cookie=f"{server.access.cookie}={server.access.token}", **headers)


def test_the_address_with_the_token_is_remembered_and_leads_to_the_clean_one(guarded: Running) -> None:
    first = ask(guarded.port, f"/runs?run=%C3%A4&token={guarded.access.token}&x=1")
    assert (first.status, first.headers["location"]) == (303, "/runs?run=%C3%A4&x=1")
    cookie = first.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    assert first.headers["cache-control"] == "no-store"
    again = ask(guarded.port, "/runs?run=%C3%A4&x=1", cookie=f"other=1; {cookie.split(';')[0]}")
    assert (again.status, again.body) == (200, "GET /runs")


def test_who_is_known_and_opens_an_old_address_goes_on(guarded: Running) -> None:
    answer = known(guarded, "/?token=old")
    assert (answer.status, answer.headers["location"]) == (303, "/")


@pytest.mark.parametrize("path", ["//evil.example/", "/\\evil.example/", "///evil.example"])
def test_the_clean_address_is_never_another_hosts(guarded: Running, path: str) -> None:
    answer = ask(guarded.port, f"{path}?token={guarded.access.token}")
    assert answer.status == 303
    assert answer.headers["location"].startswith("/evil.example")


def test_scripts_show_the_token_in_a_header(guarded: Running) -> None:
    assert ask(guarded.port, "/", "POST", "{}", authorization=f"Bearer {guarded.access.token}").status == 200
    assert ask(guarded.port, "/", authorization="Bearer wrong").status == 403


@pytest.mark.parametrize("headers", [{}, {"cookie": "scalebook=x"}, {"cookie": "{cookie}="}, {"cookie": "{cookie}=ä"}])
def test_without_the_token_there_is_nothing(guarded: Running, headers: dict[str, str]) -> None:
    headers = {name: value.format(cookie=guarded.access.cookie) for name, value in headers.items()}
    for path in ("/", "/health/", "/healthy", "/?token=", "/?token=wrong", f"/?token={'x' * 32}"):
        for method in ("GET", "HEAD", "POST", "OPTIONS"):
            assert ask(guarded.port, path, method, "" if method == "POST" else None, **headers).status == 403
    assert ask(guarded.port, f"/?token={guarded.access.token}", "POST", "").status == 403  # an address is opened
    assert handshake(guarded.port, "/", **headers).status == 403
    assert handshake(guarded.port, f"/?token={guarded.access.token}", **headers).status == 403


def test_a_browser_without_it_is_told_where_to_find_it(guarded: Running) -> None:
    answer = ask(guarded.port, "/runs", accept="text/html,application/xhtml+xml")
    assert answer.status == 403
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    assert "does not know this browser" in answer.body
    assert "scalebook ui FOLDER --address" in answer.body
    assert f"http://127.0.0.1:{guarded.port}/?token=" in answer.body
    assert str(guarded.access.token) not in answer.body
    assert "not the right token" in ask(guarded.port, "/?token=old", accept="text/html").body
    assert "scalebook ui FOLDER --address" in ask(guarded.port, "/runs").body


def test_only_health_needs_no_token(guarded: Running) -> None:
    assert ask(guarded.port, HEALTH).body == "GET /health"
    assert ask(guarded.port, HEALTH, "POST", "").status == 403
    assert ask(guarded.port, HEALTH, host="evil.example").status == 403


@pytest.mark.parametrize(
    "name", ["127.0.0.1:{port}", "localhost:{port}", "LOCALHOST:{port}", "[::1]:{port}", PROXY, TUNNEL]
)
def test_our_names_are_answered(guarded: Running, name: str) -> None:
    name = name.format(port=guarded.port)
    assert known(guarded, host=name).status == 200
    assert known(guarded, "/", "POST", host=name, origin=f"https://{name}", content_length="0").status == 200
    cookie = f"{guarded.access.cookie}={guarded.access.token}"
    assert handshake(guarded.port, "/", host=name, origin=f"http://{name}", cookie=cookie).status == ACCEPTED


@pytest.mark.parametrize(
    "name",
    ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:80", "localhost:1", "0.0.0.0:{port}", "",
     "127.0.0.1:{port}.evil.example", "127.0.0.1:{port}@evil.example", "localhost.evil.example:{port}",
     f"{PROXY}:{{port}}", f"x.{PROXY}"],
)  # fmt: skip
def test_another_name_is_refused_in_plain_words(guarded: Running, name: str) -> None:
    name = name.format(port=guarded.port)
    answer = known(guarded, host=name)
    assert (answer.status, answer.headers["content-type"]) == (403, "text/plain; charset=utf-8")
    assert f"does not accept the host name {name or '(none)'}. Open http://127.0.0.1:{guarded.port}" in answer.body
    assert "--allow-host" in answer.body
    cookie = f"{guarded.access.cookie}={guarded.access.token}"
    refused = handshake(guarded.port, "/", host=name, cookie=cookie)
    assert (refused.status, "does not accept the host name" in refused.body) == (403, True)


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "", "http://127.0.0.1:1", "http://localhost", "http://127.0.0.1:{port}.evil.example",
     "http://evil.example:{port}", "http://127.0.0.1:{port}/x", "http://x@127.0.0.1:{port}", "http://[", "http://"],
)  # fmt: skip
def test_another_origin_is_refused(guarded: Running, origin: str) -> None:
    origin = origin.format(port=guarded.port)
    for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS"):
        answer = known(guarded, "/", method, origin=origin, content_length="0")
        assert answer.status == 403
        assert "another origin" in answer.body
        assert "access-control-allow-origin" not in answer.headers
    cookie = f"{guarded.access.cookie}={guarded.access.token}"
    assert handshake(guarded.port, "/", origin=origin, cookie=cookie).status == 403


def test_other_pages_may_lead_here_but_not_use_what_is_here(guarded: Running) -> None:
    lead = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    assert known(guarded, **lead).status == 200
    assert known(guarded, "/", "POST", content_length="0", **lead).status == 403
    for change in ({"sec_fetch_dest": "iframe"}, {"sec_fetch_mode": "no-cors", "sec_fetch_dest": "script"}):
        for site in ("cross-site", "same-site"):
            assert known(guarded, **{**lead, **change, "sec_fetch_site": site}).status == 403
        assert known(guarded, **{**lead, **change, "sec_fetch_site": "same-origin"}).status == 200


def test_nobody_may_frame_what_is_served(guarded: Running) -> None:
    for answer in (
        known(guarded),
        ask(guarded.port),
        ask(guarded.port, host="evil.example"),
        ask(guarded.port, HEALTH),
    ):
        assert "frame-ancestors 'self'" in answer.headers["content-security-policy"]
        assert answer.headers["x-frame-options"] == "SAMEORIGIN"
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_policy_of_the_servers_own_holds_beside_ours(guarded: Running) -> None:
    assert known(guarded).headers["content-security-policy"] == "default-src 'self', frame-ancestors 'self'"


def test_no_token_means_none_is_asked_for_but_names_and_origins_are(tokenless: Running) -> None:
    assert ask(tokenless.port).status == 200
    assert handshake(tokenless.port, "/").status == ACCEPTED
    assert ask(tokenless.port, "/?token=old").headers["location"] == "/"
    assert ask(tokenless.port, host="evil.example").status == 403
    assert ask(tokenless.port, "/", "POST", "", origin="http://evil.example").status == 403
    assert handshake(tokenless.port, "/", origin="http://evil.example").status == 403


def test_pages_of_a_folder_that_is_not_trusted_show_no_pictures_from_elsewhere(tmp_path: Path) -> None:
    """Asked for each page anew: trust holds from the next one on."""
    answers = iter([True, False])
    server = Running(Access.of(Workspace(tmp_path), with_token=False), lambda: next(answers))
    try:
        before, data, after = (ask(server.port, accept=accept) for accept in ("text/html", "image/png", "text/html"))
    finally:
        server.end()
    assert "img-src 'self' data: blob:" in before.headers["content-security-policy"]
    for answer in (data, after):
        assert "img-src" not in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("asked", "lands"),
    [
        ("/runs?run=1%2B2&metric=%C3%A4%22%3E&empty=", "/runs?run=1%2B2&metric=%C3%A4%22%3E&empty="),
        ("/?notebook=First+steps", "/?notebook=First+steps"),
        ("/", "/"),
        (
            "//elsewhere.example/?next=https://elsewhere.example",
            "/elsewhere.example/?next=https%3A%2F%2Felsewhere.example",
        ),
    ],
)
def test_who_enters_the_token_lands_where_the_link_led(guarded: Running, asked: str, lands: str) -> None:
    refused = ask(guarded.port, asked, accept="text/html")
    path = asked.partition("?")[0]
    wrong = ask(guarded.port, as_submitted(refused, path, "not this one"), accept="text/html")
    assert (refused.status, wrong.status) == (403, 403)
    assert "not this one" not in wrong.body
    entered = ask(guarded.port, as_submitted(wrong, path, str(guarded.access.token)), accept="text/html")
    assert (entered.status, entered.headers["location"]) == (303, lands)
