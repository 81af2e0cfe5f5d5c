"""Descriptions of workspaces with modules of a user's, without a new process's imports."""

import multiprocessing
import subprocess
from collections.abc import Sequence
from contextlib import redirect_stdout
from io import StringIO
from multiprocessing.connection import Connection
from typing import Any

import pytest

_run = subprocess.run


@pytest.fixture
def forked_descriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    """`scalebook describe` runs in a fork of this process, which has imported what a new one imports in 4 s. The
    user's modules are imported there alone.
    """
    fork_descriptions(monkeypatch)


def fork_descriptions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(subprocess, "run", _forked_if_describing)


def _forked_if_describing(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    if "describe" not in command:
        done: subprocess.CompletedProcess[str] = _run(command, **options)
        return done
    words = [*command][[*command].index("describe") + 1 :]
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_describe, args=(words, sending))
    process.start()
    sending.close()
    if not receiving.poll(options["timeout"]):
        process.kill()
    printed = receiving.recv()
    process.join()
    return subprocess.CompletedProcess(command, 0, printed, "")


def _describe(words: list[str], answer: Connection) -> None:
    from scalebook.training.describe import main  # with torch and Lightning

    with redirect_stdout(StringIO()) as out:
        assert main(words) == 0
    answer.send(out.getvalue())
