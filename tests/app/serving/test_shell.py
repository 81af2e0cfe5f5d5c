import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from streamlit.file_util import get_static_dir

from scalebook.app.navigation import PLACES
from scalebook.app.serving.shell import CHARTS, FRAME, NEEDED, OURS, TITLE, Shell, early_links, library


@pytest.mark.parametrize("part", sorted({*FRAME, *(part for parts in NEEDED.values() for part in parts)}))
def test_streamlit_has_a_library_of_this_name(part: str) -> None:
    assert library(part) is not None


def test_every_page_has_a_list() -> None:
    assert {page for page, _ in NEEDED} == {f"/{place.path}" for place in PLACES}


def named(path: str, query: bytes = b"") -> list[str]:
    return re.findall(r"static/js/([\w-]+)\.", early_links(path, query).decode())


def test_a_page_names_what_it_draws_with_and_no_more() -> None:
    assert "PlotlyChart" in named("/runs", b"run=1")
    assert "DataFrame" not in named("/runs", b"run=1")
    assert "DataFrame" in named("/runs", b"state=failed")
    assert "PlotlyChart" not in named("/compare")
    assert "Selectbox" in named("/search", b"notebook=a&experiment=b")
    assert "Input" in named("/compose"), "what the library of a box for text needs itself"
    assert "react-dom" not in named("/compose"), "the frame's own"
    assert len(set(named("/compose"))) == len(named("/compose"))
    assert early_links("/media/x", b"") == b""


def test_charts_are_evaluated_early_where_the_address_says_that_there_are_some() -> None:
    charts = library(CHARTS)
    assert charts is not None
    evaluated = f'import("./static/js/{charts.name}")'
    there = [("/runs", b"run=1"), ("/search", b"search=1"), ("/compare", b"runs=1,2")]
    assert all(evaluated in early_links(path, query).decode() for path, query in there)
    without = [("/runs", b""), ("/search", b""), ("/compare", b""), ("/plan", b""), ("/", b"")]
    assert not any("import(" in early_links(path, query).decode() for path, query in without)


PAGE = b"<html><head>" + TITLE + b"</head><body>pages</body></html>"


def told(
    path: str, kind: bytes, parts: list[bytes], accept: bytes = b"text/html,*/*"
) -> tuple[dict[bytes, bytes], bytes]:
    """Headers and body as the browser gets them, of a server that answers in these parts."""
    sent: list[Any] = []
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope)
        length = str(len(b"".join(parts))).encode()
        headers = [(b"content-type", kind), (b"content-length", length), (b"etag", b"1")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for i, part in enumerate(parts):
            await send({"type": "http.response.body", "body": part, "more_body": i + 1 < len(parts)})

    async def send(message: Any) -> None:
        sent.append(message)

    asked = [(b"accept", accept), (b"accept-encoding", b"gzip")]
    scope = {"type": "http", "method": "GET", "path": path, "headers": asked}
    asyncio.run(Shell(app)(scope, None, send))  # type: ignore[arg-type]  # the app asks for nothing
    assert ((b"accept-encoding", b"gzip") in seen[0]["headers"]) == (accept == b"*/*")
    return dict(sent[0]["headers"]), b"".join(one.get("body", b"") for one in sent[1:])


@pytest.mark.parametrize("parts", [[PAGE], [PAGE[:20], PAGE[20:], b""]])
def test_a_page_says_at_once_what_it_is_and_where_its_server_is(parts: list[bytes]) -> None:
    headers, body = told("/unknown", b"text/html; charset=utf-8", parts)
    assert body == PAGE.replace(TITLE, OURS)
    assert headers[b"content-length"] == str(len(body)).encode()
    assert headers[b"etag"] == b"1"


def test_what_is_no_page_passes_as_it_is() -> None:
    assert told("/media/x", b"image/png", [TITLE])[1] == TITLE
    assert told("/x.html", b"text/html", [TITLE], accept=b"*/*")[1] == TITLE


def test_streamlits_page_has_the_title_that_is_replaced() -> None:
    assert TITLE in (Path(get_static_dir()) / "index.html").read_bytes()
