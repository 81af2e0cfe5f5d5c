"""`reference/cli.md`: every command with its options, from its parser."""

import argparse
import importlib
import sys
from collections.abc import Iterator
from typing import Final

from scalebook.app import serve
from scalebook.training.base.files.parser import CommandParser
from scalebook.training.cli.main import COMMANDS, WITH_SUBCOMMAND
from scalebook.training.cli.search import TESTS

from .markdown import table, words

TITLE: Final = """# Command line

`scalebook COMMAND --help` prints the same. Commands use the workspace around the current folder, or the one that
`SCALEBOOK_WORKSPACE` names.

| exit code | meaning |
| --- | --- |
| 0 | All is well. |
| 1 | A run, a search or a measurement failed. |
| 2 | The command or a config has a mistake. One line of standard error names the key and what to write instead. |
| 130 | The command was interrupted. |

"""


def parsers() -> dict[str, CommandParser]:
    """By its words after `scalebook`, the parser of every command, and of every command of these."""
    found = {"ui": serve.parser()}
    for name, path in COMMANDS.items():
        module = importlib.import_module(path)
        found[name] = module.parser(name) if name in WITH_SUBCOMMAND else module.parser()
    below = {f"{name} {inner}": below for name, parser in found.items() for inner, below in subcommands(parser).items()}
    return {**found, **below, **{f"search {name}": test.parser() for name, test in TESTS.items()}}


def subcommands(parser: argparse.ArgumentParser) -> dict[str, CommandParser]:
    """By name; empty where it has none."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def page() -> str:
    """The page."""
    known = parsers()
    order = [name for top in known if " " not in top for name in known if name.partition(" ")[0] == top]
    return TITLE + "".join(_section(f"scalebook {name}", known[name]) for name in order)


def _section(name: str, parser: CommandParser) -> str:
    level = "##" if name.count(" ") == 1 else "###"
    usage = parser.format_usage().removeprefix("usage: ").rstrip()
    about = "\n\n".join(words(part) for part in parser.about.split("\n\n"))
    parts = [f"{level} {name}", about, f"```text\n{usage}\n```"]
    if rows := list(_options(parser)):
        parts.append(table(("option", "meaning"), rows).rstrip())
    parts.append(f"Example: `scalebook {parser.example}`. Read on: [{parser.page}](../{parser.page}).")
    return "\n\n".join(parts) + "\n\n"


def _options(parser: CommandParser) -> Iterator[tuple[str, str]]:
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction):
            continue
        if isinstance(action, argparse._SubParsersAction):
            for choice in action._choices_actions:
                yield f"`{choice.dest}`", words(f"{choice.help}.")
            continue
        value = action.metavar or (
            "|".join(map(str, action.choices)) if action.choices else action.dest.upper() if action.nargs != 0 else ""
        )
        names = [f"{option} {value}".rstrip() for option in action.option_strings] or [str(value)]
        help_ = (action.help or "").replace("%%", "%")
        yield ", ".join(f"`{name}`" for name in names), words(f"{help_}.")


if __name__ == "__main__":
    sys.stdout.write(page())
