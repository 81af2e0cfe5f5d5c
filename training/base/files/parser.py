"""The parser of a command: its `--help` says what the command does, gives an example, and names a page to read on."""

import argparse
import textwrap
from typing import Any, Final

from typing_extensions import override

HELP: Final = ("-h", "--help")


class CommandParser(argparse.ArgumentParser):
    """A parser whose help ends with an example and a page of the documentation."""

    def __init__(self, prog: str, *, about: str, example: str, page: str, **more: Any) -> None:
        """`about`: what the command does, the first paragraph in one sentence. `example`: the words after `scalebook`.
        `page`: a file below `docs/`."""
        super().__init__(
            prog, description=about, epilog=f"example:\n\n  scalebook {example}\n\nread on:\n\n  docs/{page}",
            formatter_class=_Paragraphs, **more,
        )  # fmt: skip
        self.about, self.example, self.page = about, example, page

    def takes_value(self) -> dict[str, bool]:
        """Every option, and whether a value follows it."""
        return {option: action.nargs != 0 for option, action in self._option_string_actions.items()}


def add_command(commands: Any, name: str, about: str, example: str, page: str) -> CommandParser:
    """Add a command to those of `add_subparsers`; their list shows the first sentence of `about`."""
    first = about.partition(".\n")[0].removesuffix(".")
    parser: CommandParser = commands.add_parser(
        name, help=first[0].lower() + first[1:], about=about, example=example, page=page
    )
    return parser


class _Paragraphs(argparse.HelpFormatter):
    """Fills each paragraph by itself; one that begins with a space stays as it is."""

    @override
    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(
            paragraph if paragraph.startswith(" ") else textwrap.fill(paragraph, width, break_on_hyphens=False)
            for paragraph in text.split("\n\n")
        )
