"""Every command tells what it does, gives an example that can be run, and names a page to read on."""

import re
from pathlib import Path

import pytest

from docs.generate.commands import parsers, subcommands
from scalebook.training.base.files.parser import CommandParser
from scalebook.training.cli.main import USAGE, WITH_SUBCOMMAND
from scalebook.training.experiments.command_line import parse
from scalebook.training.experiments.description import Description

ROOT = Path(__file__).resolve().parents[2]
PARSERS = parsers()
READS_KEYS = (*WITH_SUBCOMMAND, "plan", "search rates", "search largest-batch")
"""Commands that read keys of a config, which are no options of their parsers."""
MADE = ("reference/api.md", "reference/cli.md", "reference/config.md", "reference/metrics.md")


@pytest.mark.parametrize("name", PARSERS)
def test_help_tells_what_it_does_with_an_example_and_a_page(name: str) -> None:
    parser = PARSERS[name]
    first = parser.about.partition("\n\n")[0]
    assert re.fullmatch(r"[A-Z][a-z].*\.", first), "a sentence that begins with a verb"
    assert len(first) <= 100
    assert parser.example.startswith(name), "an example of this command"
    shown = parser.format_help()
    assert " ".join(first.split()) in " ".join(shown.split())
    assert f"example:\n\n  scalebook {parser.example}\n\nread on:\n\n  docs/{parser.page}\n" in shown
    for action in parser._actions:
        assert action.help or subcommands(parser), (name, action)


@pytest.mark.parametrize("name", PARSERS)
def test_the_example_is_one_that_the_command_takes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, description: Description
) -> None:
    (tmp_path / "x.yaml").write_text("model: MLPClassifier\ndata: Digits\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    words = PARSERS[name].example.split()
    if name in READS_KEYS:
        rest = words[len(name.split()) :]
        line = parse(rest, description, PARSERS[name].takes_value())
        assert line.options.keys() <= PARSERS[name].takes_value().keys()
        assert line.config if "-c" in rest else line.options
        return
    top: CommandParser = PARSERS[words[0]]
    assert top.parse_args(words[1:])


@pytest.mark.parametrize("name", PARSERS)
def test_the_page_is_one_of_the_documentation(name: str) -> None:
    page = PARSERS[name].page
    assert re.fullmatch(r"(tutorial|how-to|concepts|reference)/[a-z-]+\.md", page)
    folder = (ROOT / "docs" / page).parent
    assert not folder.is_dir() or page in MADE or (ROOT / "docs" / page).is_file()


def test_the_list_of_commands_has_all_of_them_an_example_and_a_page() -> None:
    top = {name.partition(" ")[0] for name in PARSERS}
    assert [name for name in top if not re.search(rf"^  (\S+\|)?{name}\b", USAGE, re.MULTILINE)] == []
    assert "example:\n\n  scalebook ui notebooks\n" in USAGE
    assert USAGE.endswith("read on:\n\n  docs/tutorial/first-run.md")


def test_a_file_of_a_notebook_in_an_example_ships_with_scalebook() -> None:
    named = {word for parser in PARSERS.values() for word in parser.example.split() if word.endswith(".md")}
    assert named
    assert [name for name in named if not (ROOT / name).is_file()] == []
