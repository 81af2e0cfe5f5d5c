"""The code blocks of a page of the documentation, and what their info strings ask of a test.

```python title="sides.py"                 the block is the content of that file
```sh {.not-run reason="needs Slurm"}      it cannot run here; its commands are checked instead
```sh {.thorough}                          it takes long: `make thorough` runs it
```text {.varies}                          its numbers are of one run: only its words are printed again
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt

DOCS: Final = Path(__file__).parents[2] / "docs"
NUMBER: Final = re.compile(r"\b\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
ATTRIBUTE: Final = re.compile(r'([\w-]+)="([^"]*)"')

PLACEHOLDER: Final = re.compile(
    r"\b(?:REPOSITORY|OWNER|USERNAME|TODO|FIXME|TBD|XXX)\b|\bexample\.(?:com|net|org)\b|\byour-\w+"
)
"""What stands where an address or a name is to be written later."""


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, the file that it is, why it is not run, and where it stands."""

    language: str
    text: str
    line: int
    title: str = ""
    not_run: str = ""
    thorough: bool = False
    varies: bool = False


def blocks(page: Path) -> list[Block]:
    """Of a page, in order. ValueError for one that is not run and has no reason."""
    found = []
    for token in MarkdownIt("commonmark").parse(page.read_text(encoding="utf-8")):
        if token.type != "fence" or token.map is None:
            continue
        language, _, rest = token.info.strip().partition(" ")
        said = dict(ATTRIBUTE.findall(rest))
        if (".not-run" in rest) != bool(said.get("reason")):
            raise ValueError(f"{page.name}:{token.map[0] + 1}: a block that is not run says .not-run and its reason")
        found.append(
            Block(
                language,
                token.content,
                token.map[0] + 1,
                said.get("title", ""),
                said.get("reason", ""),
                ".thorough" in rest,
                ".varies" in rest,
            )
        )
    return found


def file_in(page: Path, name: str) -> str:
    """The block that is this file."""
    return next(block.text for block in blocks(page) if block.title == name)


def without_numbers(line: str) -> str:
    """What stays the same from run to run."""
    return " ".join(NUMBER.sub("#", line).split())
