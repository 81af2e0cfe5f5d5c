import sys

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.cli.main import main
from scalebook.training.lightning import AsyncPS


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("words", [["jobs", "list"], ["ui"], ["fit", "-c", "none.yaml"], ["no-such-command"]])
def test_every_command_says_on_another_system_that_it_needs_linux(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    said = "scalebook: error: system: Scalebook runs on Linux, but this is darwin. Use a machine with Linux.\n"
    assert capsys.readouterr().err == said


@pytest.mark.usefixtures("elsewhere")
def test_help_can_be_read_anywhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: scalebook COMMAND")


@pytest.mark.usefixtures("elsewhere")
def test_the_strategy_refuses_another_system_when_it_is_made() -> None:
    with pytest.raises(ConfigError, match="Scalebook runs on Linux, but this is darwin"):
        AsyncPS()
