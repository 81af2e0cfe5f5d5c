import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from scalebook.app.serving.child import LOOPBACK, Child, ServerDied, answers, end_leftover, free_port
from scalebook.training.base.processes import ProcessId
from tests.training.benches import wait_for


def test_a_taken_port_is_passed_over() -> None:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert free_port(port) > port
        with pytest.raises(OSError, match="no free port"):
            free_port(port, tries=1)


def test_ports_promised_to_others_are_passed_over() -> None:
    first = free_port(20000)
    assert free_port(first, frozenset({first})) > first


def test_nobody_answers_on_a_free_port() -> None:
    assert not answers(free_port(21000), "/health", timeout_s=0.5)


def server(tmp_path: Path, *code: str) -> Child:
    command = code or ("-m", "http.server", "--bind", LOOPBACK, "{port}")
    return Child(
        "files",
        lambda port: [sys.executable, *(part.format(port=port) for part in command)],
        "/",
        free_port(22000),
        tmp_path / "log.txt",
        dict(os.environ),
        tmp_path,
    )


def test_a_server_starts_answers_and_ends_with_its_session(tmp_path: Path) -> None:
    child = server(tmp_path)
    child.start()
    child.wait_until_up(20)
    process = child.id
    assert process is not None
    assert os.getsid(process.pid) == process.pid
    child.terminate()
    assert not process.alive()
    assert child.id is None
    child.terminate()  # twice does no harm


def test_a_server_ends_with_an_owner_that_is_killed_and_what_it_has_started_goes_on(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time\nfrom scalebook.app.serving.child import end_with_owner\nend_with_owner()\n"
        "print(subprocess.Popen(['sleep', '60']).pid, flush=True)\ntime.sleep(60)"
    )
    child = server(tmp_path, "-c", code)
    receiving, sending = os.pipe()
    owner = os.fork()
    if owner == 0:
        child.start()
        assert child.process is not None
        os.write(sending, str(child.process.pid).encode())
        time.sleep(60)
        os._exit(0)
    try:
        served = ProcessId.of(int(os.read(receiving, 20)))
        survivor = ProcessId.of(int(wait_for(lambda: child.log.read_text() if child.log.exists() else "", "its start")))
        assert served.alive()
    finally:
        os.kill(owner, signal.SIGKILL)
        os.waitpid(owner, 0)
        os.close(receiving)
        os.close(sending)
    wait_for(lambda: not served.alive(), "the server to end")
    assert survivor.alive()
    survivor.send(signal.SIGKILL)


def test_the_next_port_is_taken_when_another_program_was_faster(tmp_path: Path) -> None:
    child = server(tmp_path)
    with socket.socket() as thief:
        child.preferred_port = free_port(23000)
        thief.bind((LOOPBACK, child.preferred_port))
        thief.listen()
        child.start(port=child.preferred_port)
        child.wait_until_up(20)
    assert child.port > child.preferred_port
    child.terminate()


SLOW = """
import http.server, sys, time
time.sleep(1.0)
http.server.test(http.server.SimpleHTTPRequestHandler, port={port}, bind="127.0.0.1")
"""


def test_an_answer_of_another_server_on_the_port_is_not_taken_for_ones_own(tmp_path: Path) -> None:
    """Both are told the same port, as two apps that look for one at the same moment: the slower one goes on."""
    for name in ("quick", "slow"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    quick, slow = server(tmp_path / "quick"), server(tmp_path / "slow", "-c", SLOW)
    slow.preferred_port = quick.preferred_port
    try:
        slow.start(port=quick.preferred_port)
        quick.start()
        quick.wait_until_up(20)
        slow.wait_until_up(20, tries=1)  # a port that was taken is no death of its own making
        assert quick.port == quick.preferred_port
        assert slow.port > quick.port
        assert answers(quick.port, "/quick")
        assert answers(slow.port, "/slow")
    finally:
        quick.terminate()
        slow.terminate()


def test_a_server_that_cannot_start_is_named_with_its_log(tmp_path: Path) -> None:
    child = server(tmp_path, "-c", "print('no good'); raise SystemExit(3)")
    child.start()
    with pytest.raises(ServerDied, match=r"files ended during startup.*log\.txt"):
        child.wait_until_up(20)
    assert "no good" in child.log.read_text()


def test_a_server_that_never_answers_meets_the_deadline(tmp_path: Path) -> None:
    child = server(tmp_path, "-c", "import time; time.sleep(60)")
    child.start()
    with pytest.raises(ServerDied, match="did not answer within"):
        child.wait_until_up(0.5)
    child.terminate()


def test_what_an_owner_left_is_ended(tmp_path: Path) -> None:
    child = server(tmp_path)
    child.start()
    child.wait_until_up(20)
    process = child.id
    assert process is not None
    end_leftover(process, [tmp_path / "other.log"])  # a record may name any process
    assert process.alive()
    end_leftover(process, [child.log])
    assert child.process is not None
    assert not process.alive()
    child.process.wait(5)
    end_leftover(process, [child.log])  # gone already
