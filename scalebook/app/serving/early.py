"""What of Streamlit's pages a page of ours needs beyond their frame, to be named in its HTML.

Streamlit asks for the library of a kind of element when the first of it is to be drawn, and for what that library needs
when it has come. Named in the HTML, the browser fetches and compiles them all while Streamlit itself starts. The
library of charts must then be evaluated, for as long as the server takes to make the page: both are done at once.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs

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
"""By path and a parameter of the address; without one, what the page needs when none of its parameters is there."""
WHILE_ASKED = b"""<script>{
  const send = WebSocket.prototype.send;
  WebSocket.prototype.send = function (...told) {
    WebSocket.prototype.send = send;
    send.apply(this, told);
    setTimeout(() => import("./static/js/%s"));
  };
}</script>"""
"""Evaluates a library as soon as the server has been asked for the page."""
IMPORT = re.compile(r"""(?:from|import)\s*["'`]\./([\w.-]+\.js)["'`]""")


def links(path: str, query: bytes) -> bytes:
    """The elements for the head of the page at this address; nothing for a path that is no page of ours."""
    told = parse_qs(query.decode("latin-1"))
    views = {parameter: parts for (page, parameter), parts in NEEDED.items() if page == path}
    if not views:
        return b""
    parameter = next((parameter for parameter in views if parameter in told), "")
    named = b"".join(
        b'<link rel="modulepreload" crossorigin href="./static/js/%s">' % name.encode()
        for name in _files((*FRAME, *views[parameter]))
    )
    charts = library(CHARTS) if parameter and CHARTS in views[parameter] else None
    return named + (WHILE_ASKED % charts.name.encode() if charts is not None else b"")


@cache
def _files(parts: Sequence[str]) -> list[str]:
    """The files of these libraries and of what they need; those that the frame names itself are left out."""
    named = set(re.findall(r"static/js/([\w.-]+\.js)", (_static() / "index.html").read_text(encoding="utf-8")))
    found: dict[str, None] = {}
    _gather([path.name for part in parts if (path := library(part)) is not None], found)
    return [name for name in found if name not in named]


def _gather(names: Iterable[str], found: dict[str, None]) -> None:
    for name in names:
        if name not in found:
            found[name] = None
            _gather(IMPORT.findall((_static() / "static" / "js" / name).read_text(encoding="utf-8")), found)


@cache
def library(part: str) -> Path | None:
    """The file of one kind of element, as `Selectbox`; None where this Streamlit has none of that name."""
    return next(iter((_static() / "static" / "js").glob(f"{part}.*.js")), None)


@cache
def _static() -> Path:
    spec = find_spec("streamlit")
    origin = spec.origin if spec is not None else None
    assert origin is not None, "Streamlit serves this"
    return Path(origin).parent / "static"
