"""The command as a whole: who reads its output may stop."""

import importlib
import os
import sys
from types import SimpleNamespace

import pytest

from scalebook.training.cli import main


def calls(argv: list[str]) -> int:
    raise BrokenPipeError("of a connection, or of the output")


@pytest.mark.parametrize("is_read", [True, False])
def test_who_reads_no_further_ends_a_command_and_other_broken_pipes_are_errors(
    is_read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib, "import_module", lambda name: SimpleNamespace(main=calls))
    read, write = os.pipe()
    with open(write, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        if is_read:
            with pytest.raises(BrokenPipeError):
                main.main(["jobs", "list"])
            os.close(read)
            return
        os.close(read)
        assert main.main(["jobs", "list"]) == 1
        print("what is still written goes nowhere", file=output, flush=True)
