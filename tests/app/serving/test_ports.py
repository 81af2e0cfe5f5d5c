import socket

import pytest

from scalebook.app.serving.ports import LOOPBACK, answers, free_port


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
