"""Requests as other programs make them: any name of the host, any origin, any cookie."""

import base64
import http.client
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.NewSession_pb2 import NewSession
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from scalebook.app.serving.child import LOOPBACK

ACCEPTED = 101
STREAM = "/_stcore/stream"
"""Where Streamlit's pages open their websocket."""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str] = field(repr=False)
    """By their names in small letters; those that come twice are joined with a comma."""
    body: str = field(repr=False)


def ask(port: int, path: str = "/", method: str = "GET", body: str | None = None, **headers: str) -> Answer:
    """One request; `content_type="..."` is the header Content-Type. Without `host` it names the server truly."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=20)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        told = {"host": f"{LOOPBACK}:{port}", **headers}
        if body is not None:
            told["content_length"] = str(len(body))
        for name, value in told.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders(body.encode() if body is not None else None)
        answer = connection.getresponse()
        found: dict[str, str] = {}
        for name, value in answer.getheaders():
            found[name.lower()] = ", ".join(filter(None, [found.get(name.lower()), value]))
        return Answer(
            answer.status, found, "" if answer.status == ACCEPTED else answer.read().decode("utf-8", "replace")
        )
    finally:
        connection.close()


def handshake(port: int, path: str, **headers: str) -> Answer:
    """The begin of a websocket: ACCEPTED, or how it was refused."""
    key = base64.b64encode(os.urandom(16)).decode()
    upgrade = {"connection": "Upgrade", "upgrade": "websocket", "sec_websocket_version": "13", "sec_websocket_key": key}
    return ask(port, path, **upgrade, **headers)


def opened(port: int, cookie: str) -> list[ForwardMsg]:
    """What the server sends to a browser that opens the first page, from settings and theme to the end of the page."""
    address = f"ws://{LOOPBACK}:{port}{STREAM}"
    headers = {"Cookie": cookie}
    with connect(address, subprotocols=[Subprotocol("streamlit")], additional_headers=headers, max_size=None) as socket:
        asked = BackMsg()
        asked.rerun_script.query_string = ""
        socket.send(asked.SerializeToString())
        messages = [_received(socket)]
        while messages[-1].WhichOneof("type") != "script_finished":
            messages.append(_received(socket))
    return messages


def _received(socket: ClientConnection, deadline_s: float = 60.0) -> ForwardMsg:
    raw = socket.recv(timeout=deadline_s)
    assert isinstance(raw, bytes)
    message = ForwardMsg()
    message.ParseFromString(raw)
    return message


def new_session(messages: Sequence[ForwardMsg]) -> NewSession:
    return next(one.new_session for one in messages if one.WhichOneof("type") == "new_session")
