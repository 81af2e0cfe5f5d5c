"""`scalebook` in a fork of this process, which has imported what a new one imports in 4 s; and descriptions so made."""

import multiprocessing
import subprocess
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from multiprocessing.connection import Connection
from typing import Any

import pytest

from scalebook.training.experiments import catalogue

_run = subprocess.run


@pytest.fixture
def forked_descriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    """`scalebook describe` runs in a fork. The user's modules are imported there alone."""
    fork_descriptions(monkeypatch)


def fork_descriptions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(subprocess, "run", _forked_if_describing)
    patch.setattr(catalogue, "_run", _described)


def _described(command: Sequence[str], note_progress: Callable[[], None]) -> str:
    done = _forked_if_describing(command, timeout=catalogue.DEADLINE_S)
    done.check_returncode()
    return done.stdout


def _forked_if_describing(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    if "describe" not in command:
        done: subprocess.CompletedProcess[str] = _run(command, **options)
        return done
    return forked(*[*command][[*command].index("describe") :], timeout_s=options["timeout"])


def forked(*words: str, timeout_s: float = 100.0) -> subprocess.CompletedProcess[str]:
    """`scalebook WORDS` in a fork, for a test that imports modules of a user's, which no other test shall find."""
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_scalebook, args=(words, sending))
    process.start()
    sending.close()
    if not receiving.poll(timeout_s):
        process.kill()
    code, printed, said = receiving.recv()
    process.join()
    return subprocess.CompletedProcess(words, code, printed, said)


def _scalebook(words: Sequence[str], answer: Connection) -> None:
    from scalebook.training.cli.main import main

    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        code = main([*words])
    answer.send((code, out.getvalue(), err.getvalue()))
