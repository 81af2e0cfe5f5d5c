"""The command as a whole: who reads its output may stop."""

import importlib
import os
from types import SimpleNamespace

import pytest

from scalebook.training.cli import main


def test_who_reads_no_further_ends_a_command_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def writes_on(argv: list[str]) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(importlib, "import_module", lambda name: SimpleNamespace(main=writes_on))
    monkeypatch.setattr(os, "dup2", lambda new, old: None)
    assert main.main(["jobs", "list"]) == 1
    assert capfd.readouterr().err == ""
