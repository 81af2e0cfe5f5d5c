"""ASGI middleware before both servers: it passes only the requests that `Access` allows.

Other pages in the user's browser can reach a server on the loopback interface, through a name that they make resolve to
127.0.0.1 or from another port; so can other users of the machine. Before the server sees a request, HTTP or websocket,
three things are checked: its host is one of ours, it comes from no other origin, it has the token.
"""

import hmac
import html
from collections.abc import Callable
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote_plus

from scalebook.app.serving.access import TOKEN, Access

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

WHERE_IT_IS = (
    "The address with the token is in the terminal where `scalebook ui` runs; "
    "`scalebook ui FOLDER --address` prints it again."
)
_REFUSAL = Template(Path(__file__).with_name("refusal.html").read_text(encoding="utf-8"))


def refusal_page(address: str, wrong: bool, query: str = "") -> str:
    """The HTML for a browser without the token: it says where to find the address with the token.

    `wrong`: the request has a token, but not that of this server. `query`: the query string of the address without the
    token; the form keeps it.
    """
    title = "This is not the right token" if wrong else "Scalebook does not know this browser"
    why = (
        "It may be an old token, or the token of another folder. There are three ways to sign in:"
        if wrong
        else "The browser needs an address with a token. There are three ways to sign in:"
    )
    extra = "".join(
        f'<input type="hidden" name="{html.escape(name)}" value="{html.escape(value)}">'
        for name, value in parse_qsl(query, keep_blank_values=True)
    )
    return _REFUSAL.substitute(title=title, why=why, address=html.escape(address), extra=extra)


REMEMBERED_S = 30 * 24 * 3600
READING = ("GET", "HEAD")
Headers = list[tuple[bytes, bytes]]
MANNERS: Headers = [
    (b"content-security-policy", b"frame-ancestors 'self'"),
    (b"x-frame-options", b"SAMEORIGIN"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
]
"""Headers of every response: no other site may frame it, guess its type, or learn its address from a link."""
OWN_PICTURES = b"; img-src 'self' data: blob:; media-src 'self' data: blob:"
RESERVED: Headers = [(MANNERS[0][0], MANNERS[0][1] + OWN_PICTURES), *MANNERS[1:]]
"""Headers of pages of a folder that is not trusted: pictures in a note would tell their servers who reads it, and
when."""


class Guard:
    """The middleware around `app`.

    `health` is the one path that needs no token; it says only that the server is up.

    `reserved`, called for each page, returns whether the page may show only pictures of this server.
    """

    def __init__(
        self, app: "ASGIApp", access: Access, port: int, health: str, reserved: Callable[[], bool] = lambda: False
    ) -> None:
        self._app, self._access, self._health, self._reserved = app, access, health, reserved
        self._ours = access.authorities(port)
        self._address = f"http://127.0.0.1:{port}"

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        request = _GuardedRequest(scope)
        if reason := self._foreign(request):
            await _refuse(scope, send, reason)
        elif (
            request.reading and request.token is not None and (self._known(request.token) or self._remembered(request))
        ):
            await _respond(send, 303, [(b"location", request.without_token()), *self._cookie()], b"")
        elif self._may_enter(request):
            reserved = request.wants_html and self._reserved()
            await self._app(scope, receive, _with_manners(send, RESERVED if reserved else MANNERS))
        elif request.wants_html:
            words = refusal_page(
                self._address, request.token is not None, request.query_without_token().decode("latin-1")
            )
            await _refuse(scope, send, words, "text/html")
        else:
            await _refuse(scope, send, f"Scalebook: the token is missing or wrong. {WHERE_IT_IS}\n")

    def _foreign(self, request: "_GuardedRequest") -> str:
        """Why the request is refused: another host name, another origin, or embedded in another page; "" if none."""
        if len(request.hosts) != 1 or request.hosts[0] not in self._ours:
            name = ascii(", ".join(request.hosts))[1:-1][:100]
            return (
                f"Scalebook does not accept the host name {name or '(none)'}. Open {self._address}. Behind a proxy "
                "or a tunnel, start scalebook ui --allow-host NAME[:PORT], with the name that the address bar shows.\n"
            )
        if any(origin.partition("://")[2] not in self._ours for origin in request.origins):
            return (
                "Scalebook answers only requests from its own pages. This request came from a page with another "
                "origin.\n"
            )
        if request.embedded:
            return "Scalebook's pages cannot be embedded in a page of another origin. Open them in a separate tab.\n"
        return ""

    def _may_enter(self, request: "_GuardedRequest") -> bool:
        if self._access.token is None or (request.path == self._health and request.reading):
            return True
        return self._remembered(request) or any(self._known(bearer) for bearer in request.bearers)

    def _remembered(self, request: "_GuardedRequest") -> bool:
        return any(self._known(cookie) for cookie in request.cookies(self._access.cookie))

    def _known(self, token: str) -> bool:
        """Whether the token is right, or none is required. Compared in constant time."""
        ours = self._access.token
        return ours is None or hmac.compare_digest(token.encode("utf-8", "replace"), ours.encode())

    def _cookie(self) -> Headers:
        """The header that stores the token. SameSite=Lax, so that it is also sent after a link from a chat, or from one
        of our servers to the other."""
        if self._access.token is None:
            return []
        cookie = f"{self._access.cookie}={self._access.token}; Path=/; Max-Age={REMEMBERED_S}; HttpOnly; SameSite=Lax"
        return [(b"set-cookie", cookie.encode())]


class _GuardedRequest:
    """The parts of a request that the guard checks."""

    def __init__(self, scope: "Scope") -> None:
        self._headers: list[tuple[bytes, bytes]] = list(scope["headers"])
        self.path: str = scope["path"]
        self._raw: bytes = scope.get("raw_path") or scope["path"].encode()
        self._query = [part.partition(b"=") for part in scope["query_string"].split(b"&")]
        self.websocket = scope["type"] == "websocket"
        self.reading = not self.websocket and scope["method"] in READING
        self.hosts = [host.lower() for host in self._all(b"host")]
        self.origins = [origin.lower() for origin in self._all(b"origin")]
        self.bearers = [header[7:].strip() for header in self._all(b"authorization") if header[:7].lower() == "bearer "]
        self.wants_html = not self.websocket and any("text/html" in header for header in self._all(b"accept"))
        tokens = [value for key, _, value in self._query if key == TOKEN.encode()]
        self.token = unquote_plus(tokens[0].decode("latin-1")).strip() if tokens else None

    def _all(self, name: bytes) -> list[str]:
        return [value.decode("latin-1") for key, value in self._headers if key == name]

    @property
    def embedded(self) -> bool:
        """Whether a page of another origin embeds this, as a script, a picture or a frame, instead of linking to it.

        Old browsers do not say so; a websocket says it by its origin.
        """
        if self.websocket or not set(self._all(b"sec-fetch-site")) & {"same-site", "cross-site"}:
            return False
        leads = self._all(b"sec-fetch-mode") == ["navigate"] and self._all(b"sec-fetch-dest") == ["document"]
        return not (leads and self.reading)

    def cookies(self, name: str) -> list[str]:
        pairs = [pair.strip().partition("=") for line in self._all(b"cookie") for pair in line.split(";")]
        return [value for key, _, value in pairs if key == name]

    def without_token(self) -> bytes:
        """This address without the token. It begins with a single slash, because two would name another host."""
        rest = self.query_without_token()
        return b"/" + self._raw.lstrip(b"/\\") + (b"?" + rest if rest else b"")

    def query_without_token(self) -> bytes:
        return b"&".join(b"".join(part) for part in self._query if part[0] != TOKEN.encode())


def _with_manners(send: "Send", manners: Headers) -> "Send":
    async def sending(message: "Message") -> None:
        if message["type"] == "http.response.start":
            ours = {name for name, _ in MANNERS[1:]}  # a content policy of the server's own holds beside ours
            theirs = [pair for pair in message.get("headers", []) if pair[0].lower() not in ours]
            message = {**message, "headers": [*theirs, *manners]}
        await send(message)

    return sending


async def _refuse(scope: "Scope", send: "Send", words: str, kind: str = "text/plain") -> None:
    if scope["type"] == "http":
        headers = [(b"content-type", f"{kind}; charset=utf-8".encode())]
        await _respond(send, 403, headers, words.encode() if scope["method"] != "HEAD" else b"")
    elif "websocket.http.response" in (scope.get("extensions") or {}):
        await _respond(send, 403, [(b"content-type", b"text/plain; charset=utf-8")], words.encode(), "websocket.")
    else:
        await send({"type": "websocket.close", "code": 1008})


async def _respond(send: "Send", status: int, headers: Headers, body: bytes, kind: str = "") -> None:
    length = [(b"content-length", str(len(body)).encode()), (b"cache-control", b"no-store")]
    start = {"type": f"{kind}http.response.start", "status": status, "headers": [*headers, *length, *MANNERS]}
    await send(start)
    await send({"type": f"{kind}http.response.body", "body": body})
