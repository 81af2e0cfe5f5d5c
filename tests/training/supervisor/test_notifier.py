"""Who is told of an end: a command with its arguments, an address; what goes wrong stands in the supervisor's log."""

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from scalebook.training.base.trust import trust, trusted
from scalebook.training.base.workspace import NotifySettings
from scalebook.training.jobs import end_notices
from scalebook.training.jobs.end_notices import Ending
from scalebook.training.supervisor import notifier
from scalebook.training.supervisor.notifier import notify
from tests.training.benches import Bench, until_state, wait_for

ENDING = Ending("run", "a", "pixelcnn seed 1", "finished", 1000.0, 90.0, "first.md")
WRITES = "import pathlib, sys; pathlib.Path('told.txt').write_text('|'.join(sys.argv[1:]) + sys.stdin.read())"


@pytest.fixture
def posted() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """The address of a server, and what it was sent; below `/refused` it says no."""
    received: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            received.append((self.headers["Content-Type"], content))
            self.send_response(500 if self.path == "/refused" else 200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", received
    server.shutdown()
    thread.join(10)
    server.server_close()


def test_a_command_gets_words_and_json_and_is_no_shell(tmp_path: Path) -> None:
    asked = NotifySettings((sys.executable, "-c", WRITES, "$HOME; ls"))
    assert notify(asked, ENDING, tmp_path) == []
    words, _, content = (tmp_path / "told.txt").read_text().partition("{")
    assert words == "$HOME; ls|Scalebook: pixelcnn seed 1 finished after 1 min 30 s."
    told = json.loads("{" + content)
    assert (told["state"], told["notebook"], told["seconds"]) == ("finished", "first.md", 90.0)


def test_an_address_gets_json(tmp_path: Path, posted: tuple[str, list[tuple[str, bytes]]]) -> None:
    address, received = posted
    assert notify(NotifySettings(webhook=address), ENDING, tmp_path) == []
    ((kind, content),) = received
    assert kind == "application/json"
    assert json.loads(content)["text"] == "Scalebook: pixelcnn seed 1 finished after 1 min 30 s."


def test_what_goes_wrong_is_said_in_words(
    tmp_path: Path, posted: tuple[str, list[tuple[str, bytes]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = NotifySettings((sys.executable, "-c", "import sys; sys.exit('no bell')"), f"{posted[0]}/refused")
    assert notify(asked, ENDING, tmp_path) == [
        f"notify.command {sys.executable}: exited with code 1: no bell",
        "notify.webhook: HTTPError: HTTP Error 500: Internal Server Error",
    ]
    assert notify(NotifySettings(("./none",)), ENDING, tmp_path) == [
        "notify.command ./none: cannot be run (No such file or directory)"
    ]
    monkeypatch.setattr(notifier, "COMMAND_DEADLINE_S", 0.2)
    slow = NotifySettings((sys.executable, "-c", "import time; time.sleep(60)"))
    assert notify(slow, ENDING, tmp_path) == [f"notify.command {sys.executable}: did not end within 0.2 s"]


def test_the_supervisor_tells_of_a_run_s_end_only_where_the_folder_is_trusted(bench: Bench) -> None:
    settings = bench.workspace.root / "scalebook.toml"
    settings.write_text(f"[notify]\ncommand = {json.dumps([sys.executable, '-c', WRITES])}\n")
    bench.supervise()
    first = bench.job(name="first")
    until_state(first, "finished")
    wait_for(lambda: "no notification was sent, because the folder is not trusted" in bench.log(), "the log to say so")
    assert not (bench.workspace.root / "told.txt").exists()
    trust(bench.workspace)
    second = bench.job(name="second")
    until_state(second, "finished")
    told = bench.workspace.root / "told.txt"
    wait_for(lambda: told.exists() and told.read_text().endswith("}"), "the command")
    assert told.read_text().startswith("Scalebook: second finished after ")
    assert [ending.id for ending in end_notices.since(bench.workspace, 0)[0]] == [first.id, second.id]
    settings.write_text('[notify]\ncommand = ["another"]\n')
    assert not trusted(bench.workspace)  # it is part of what was trusted
