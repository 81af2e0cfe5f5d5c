"""The HTML that a browser loads before Streamlit's own pages: it says at once what it is, where its server is, and what
else is needed (`early`).

Streamlit guesses from the address how deep its server's root lies, asks for files there, and so leaves two errors of
404 in the console of every page but the first. Told where the root is, it does not guess.
"""

from typing import TYPE_CHECKING

from scalebook.app.serving.early import links

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

TITLE = b"<title>Streamlit</title>"
OURS = b"<title>Scalebook</title><script>window.__streamlit = {BACKEND_BASE_URL: location.origin}</script>"


class Shell:
    """`app`, whose page gets our title, the address of its server and the names of what it will need."""

    def __init__(self, app: "ASGIApp") -> None:
        self._app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] != "http" or scope["method"] != "GET" or not _wants_html(scope):
            await self._app(scope, receive, send)
            return
        plain = [pair for pair in scope["headers"] if pair[0] != b"accept-encoding"]  # a packed page cannot be changed
        early = links(scope["path"], scope.get("query_string", b""))
        await self._app({**scope, "headers": plain}, receive, _Changed(send, OURS + early))


def _wants_html(scope: "Scope") -> bool:
    return any(key == b"accept" and b"text/html" in value for key, value in scope["headers"])


class _Changed:
    """Sends a page when it is there as a whole, since its length is told first; anything else as it comes."""

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
        kept = [pair for pair in self._start["headers"] if pair[0].lower() != b"content-length"]
        headers = [*kept, (b"content-length", str(len(body)).encode())]
        await self._send({**self._start, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})
