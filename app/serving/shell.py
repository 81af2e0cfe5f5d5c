"""The HTML that a browser loads before Streamlit's pages: title, server address, and the libraries to preload.

Streamlit loads the library of an element type when it draws the first one, then what that library imports. With all of
them named in the HTML, the browser fetches and compiles them while Streamlit itself starts. The chart library is also
evaluated while the server computes the page.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

FRAME: Final = ("Html", "Button", "PageLink")
BOXES: Final = ("Selectbox", "TextInput")
CHARTS: Final = "PlotlyChart"
"""4.7 MB, on which a browser works for a quarter of a second."""
NEEDED: Final[dict[tuple[str, str], Sequence[str]]] = {
    ("/", ""): ("Selectbox", "DownloadButton", "MenuButton"),
    ("/compose", ""): (*BOXES, "ButtonGroup", "Checkbox", "DownloadButton"),
    ("/runs", ""): (*BOXES, "DataFrame"),
    ("/runs", "run"): (CHARTS, "LinkButton", "ButtonGroup", "Checkbox", "Slider", "Multiselect"),
    ("/search", ""): (),
    ("/search", "search"): (CHARTS, "Selectbox", "LinkButton"),
    ("/search", "notebook"): (*BOXES, "ButtonGroup", "Radio"),
    ("/plan", ""): (CHARTS, *BOXES, "ButtonGroup", "Multiselect", "DownloadButton", "Checkbox"),
    ("/compare", ""): ("Multiselect",),
    ("/help", ""): (),
    ("/compare", "runs"): (CHARTS, *BOXES, "Multiselect", "LinkButton", "ButtonGroup", "Checkbox", "Slider"),
}
"""Element types by path and query parameter; "" is for an address with none of the path's parameters."""
WHILE_ASKED = b"""<script>{
  const send = WebSocket.prototype.send;
  WebSocket.prototype.send = function (...told) {
    WebSocket.prototype.send = send;
    send.apply(this, told);
    setTimeout(() => import("./static/js/%s"));
  };
}</script>"""
"""Evaluates a library as soon as the browser has requested the page from the server."""
IMPORT = re.compile(r"""(?:from|import)\s*["'`]\./([\w.-]+\.js)["'`]""")


def early_links(path: str, query: bytes) -> bytes:
    """The HTML to add to the head of the page at this address; empty for a path that is no page."""
    parameters = parse_qs(query.decode("latin-1"))
    views = {parameter: parts for (page, parameter), parts in NEEDED.items() if page == path}
    if not views:
        return b""
    parameter = next((parameter for parameter in views if parameter in parameters), "")
    named = b"".join(
        b'<link rel="modulepreload" crossorigin href="./static/js/%s">' % name.encode()
        for name in _files((*FRAME, *views[parameter]))
    )
    charts = library(CHARTS) if parameter and CHARTS in views[parameter] else None
    return named + (WHILE_ASKED % charts.name.encode() if charts is not None else b"")


@cache
def _files(parts: Sequence[str]) -> list[str]:
    """The files of these libraries and their imports, without those that Streamlit's own HTML names."""
    named = set(
        re.findall(r"static/js/([\w.-]+\.js)", (_streamlit_static() / "index.html").read_text(encoding="utf-8"))
    )
    needed: dict[str, None] = {}
    _gather([path.name for part in parts if (path := library(part)) is not None], needed)
    return [name for name in needed if name not in named]


def _gather(names: Iterable[str], needed: dict[str, None]) -> None:
    for name in names:
        if name not in needed:
            needed[name] = None
            _gather(IMPORT.findall((_streamlit_static() / "static" / "js" / name).read_text(encoding="utf-8")), needed)


@cache
def library(part: str) -> Path | None:
    """The library's file of an element type, such as `Selectbox`; None if this Streamlit has none."""
    return next(iter((_streamlit_static() / "static" / "js").glob(f"{part}.*.js")), None)


@cache
def _streamlit_static() -> Path:
    spec = find_spec("streamlit")
    origin = spec.origin if spec is not None else None
    assert origin is not None, "Streamlit serves this"
    return Path(origin).parent / "static"


TITLE = b"<title>Streamlit</title>"
OURS = b"<title>Scalebook</title><script>window.__streamlit = {BACKEND_BASE_URL: location.origin}</script>"


class Shell:
    """`app` with our title, the server's address and the preloads in the HTML of its pages.

    Streamlit guesses the server's root from the address, and so leaves two 404 errors in the console of every page but
    the first. With the root in the HTML it does not guess.
    """

    def __init__(self, app: "ASGIApp") -> None:
        self._app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] != "http" or scope["method"] != "GET" or not _wants_html(scope):
            await self._app(scope, receive, send)
            return
        plain = [pair for pair in scope["headers"] if pair[0] != b"accept-encoding"]  # a packed page cannot be changed
        early = early_links(scope["path"], scope.get("query_string", b""))
        await self._app({**scope, "headers": plain}, receive, _BufferedPage(send, OURS + early))


def _wants_html(scope: "Scope") -> bool:
    return any(key == b"accept" and b"text/html" in value for key, value in scope["headers"])


class _BufferedPage:
    """Sends a page once it is complete, because its length comes first; passes on anything else at once."""

    def __init__(self, send: "Send", head: bytes) -> None:
        self._send, self._head = send, head
        self._start: Message | None = None
        self._parts: list[bytes] = []

    async def __call__(self, message: "Message") -> None:
        if message["type"] == "http.response.start" and self._is_page(message):
            self._start = message
        elif self._start is None:
            await self._send(message)
        elif message["type"] == "http.response.body":
            self._parts.append(message.get("body", b""))
            if not message.get("more_body"):
                await self._whole()

    @staticmethod
    def _is_page(start: "Message") -> bool:
        kinds = [value for key, value in start.get("headers", []) if key.lower() == b"content-type"]
        return start["status"] == 200 and any(kind.startswith(b"text/html") for kind in kinds)

    async def _whole(self) -> None:
        assert self._start is not None, "a body comes after its start"
        body = b"".join(self._parts).replace(TITLE, self._head, 1)
        others = [pair for pair in self._start["headers"] if pair[0].lower() != b"content-length"]
        headers = [*others, (b"content-length", str(len(body)).encode())]
        await self._send({**self._start, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})
