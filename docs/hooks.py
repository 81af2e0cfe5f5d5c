"""A hook of MkDocs (`hooks: [docs/hooks.py]`): makes the pages of the reference from the code, when it builds.

A page may place a table of a benchmark: `<!-- table: NAME -->`, NAME one of `generate/tables.py`.
"""

import re
import sys
import tomllib
from collections.abc import Callable
from functools import cache
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # MkDocs runs this file by its path

from docs.generate import api, commands, config, gallery, metrics, tables  # noqa: E402

PAGES: Final[dict[str, Callable[[], str]]] = {
    "reference/config.md": lambda: config.page(config.described()),
    "reference/cli.md": commands.page,
    "reference/api.md": api.page,
    "reference/metrics.md": metrics.page,
    "benchmarks/tables.md": tables.page,
}

SEARCH_BOOST: Final = {
    "tutorial": 2.0,
    "how-to": 4.0,
    "concepts": 2.0,
    "reference": 0.5,
    "benchmarks": 0.5,
    "design": 0.2,
}
"""By folder: a search finds first what to do, then what it means, then what it was measured with."""

_READ_FROM: Final = TemporaryDirectory()
READ: Final = ("training/__init__.py", *(f"training/{room}" for room in ("callbacks", "engine", "lightning", "zoo")))
"""Of the package, what `api` names. mkdocstrings would read all of it: 540 files, 4 s."""


def on_config(config: Any) -> None:
    """Take the address of the repository from pyproject.toml, if it has one. Have mkdocstrings look where the package
    is put together as it is installed, and nothing else is."""
    for name in ("scalebook/__init__.py", *READ):
        link = Path(_READ_FROM.name, "scalebook", name.removeprefix("scalebook/"))
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(ROOT / name)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    config.repo_url = project.get("urls", {}).get("Repository")
    config.plugins["mkdocstrings"].config.handlers["python"]["paths"] = [_READ_FROM.name]


on_config.mkdocs_priority = 100  # type: ignore[attr-defined]  # before that of mkdocstrings, which reads the setting


@cache
def made(uri: str) -> str:
    """The page, made once however often `mkdocs serve` builds."""
    return PAGES[uri]()


def on_files(files: Any, config: Any) -> Any:
    """Add the pages; leave out the programs that make them."""
    from mkdocs.structure.files import File, InclusionLevel

    for file in [file for file in files if file.src_uri.endswith((".py", ".pyc"))]:
        files.remove(file)
    for uri, content in {**{uri: made(uri) for uri in PAGES}, **api.pages(), **gallery.pages()}.items():
        file = File.generated(config, uri, content=content)
        file.inclusion = InclusionLevel.NOT_IN_NAV  # which is not to say that it must not be there
        files.append(file)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Place the tables that a page asks for, and tell the search how much the page weighs."""
    page.meta.setdefault("search", {"boost": SEARCH_BOOST.get(page.file.src_uri.partition("/")[0], 1.0)})
    return tables.placed(markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Tell each cell of a table the head of its column, which a phone shows before it (stylesheets/scalebook.css)."""
    return re.sub(r"<table>.*?</table>", lambda table: _labelled(table[0]), html, flags=re.DOTALL)


def _labelled(table: str) -> str:
    heads = [re.sub(r"<[^>]*>|\"", "", head) for head in re.findall(r"<th[^>]*>(.*?)</th>", table, re.DOTALL)]
    labels = cycle(heads)
    return re.sub(r"<td\b", lambda _: f'<td data-label="{next(labels)}"', table)
