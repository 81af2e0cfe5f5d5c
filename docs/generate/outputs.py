"""Writes what the commands of a page print into it: `python -m docs.generate.outputs docs/tutorial/PAGE.md ...`.

A `text` block shows lines of what the `sh` block before it printed: those that the page had, with today's numbers. All
blocks of a page run in one empty folder, in order. `make outputs` does it for the tutorial.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.docs.blocks import Block, blocks, without_numbers


def main() -> None:
    """Each page named on the command line."""
    for page in map(Path, sys.argv[1:]):
        with TemporaryDirectory() as folder:
            page.write_text(refreshed(page, Path(folder)), encoding="utf-8")


def refreshed(page: Path, folder: Path) -> str:
    """The page with what its commands print in `folder`. ValueError for a line that they no longer print."""
    lines = page.read_text(encoding="utf-8").splitlines(keepends=True)
    for block, printed in reversed(list(_printed(page, folder))):
        end = block.line + block.text.count("\n")
        lines[block.line : end] = _selected(block, printed, page)
    return "".join(lines)


def _printed(page: Path, folder: Path) -> Iterator[tuple[Block, str]]:
    """The `text` blocks, each with what the commands before it printed."""
    printed = ""
    for block in blocks(page):
        if block.title:
            (folder / block.title).write_text(block.text, encoding="utf-8")
        elif block.language == "sh":
            printed = "" if block.not_run else _run(block.text, folder)
        elif block.language == "text" and printed:
            yield block, printed


def _run(commands: str, folder: Path) -> str:
    """Standard output, by the commands of this environment."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    words = ["bash", "-euc", commands]
    done = subprocess.run(
        words, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, timeout=1800, check=True
    )
    return done.stdout


def _selected(block: Block, printed: str, page: Path) -> list[str]:
    """For each line of the block the next printed line that begins with the same words."""
    rest = iter(printed.splitlines())
    chosen = []
    for wanted in block.text.splitlines():
        form = without_numbers(wanted)
        line = next((line for line in rest if without_numbers(line).startswith(form)), None)
        if line is None:
            raise ValueError(f"{page.name}:{block.line}: no command prints {wanted!r}\n{printed}")
        chosen.append(f"{line.rstrip()}\n")
    return chosen


if __name__ == "__main__":
    main()
