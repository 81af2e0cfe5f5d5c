"""The documents of docs/, which every installation has, made fit for a page: without pictures, links lead back here.

The reference is made of the installed code when it is read, by the programs that make it for the site.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib import import_module
from pathlib import PurePosixPath
from posixpath import normpath
from typing import Any, Final

import scalebook
from scalebook.training.experiments import Description

DOCS: Final = scalebook.SOURCES / "docs"
ADDRESS: Final = "/help"
START: Final = "index"
SECTIONS: Final = ("tutorial", "how-to", "concepts", "reference", "benchmarks")
"""Folders of docs/ that Help shows. The design pages are for contributors and not among them."""
GENERATED: Final = {
    "reference/config": "config",
    "reference/cli": "commands",
    "reference/api": "api",
    "reference/metrics": "metrics",
    "benchmarks/tables": "tables",
}
"""Pages that no file has, by name, with the module of docs/generate that makes them."""
MOST: Final = 20
"""Pages of a section that are offered in a row; longer sections have their index alone."""

FENCE: Final = re.compile(r"^(?P<begin> *(`{3,}))[^\n]*\n.*?^ *\2[ \t]*$", re.M | re.S)
PICTURE: Final = re.compile(r"^[ \t]*!\[[^\]]*\]\([^)]*\)[ \t]*\n", re.M)
LINK: Final = re.compile(r"(?<!!)\[([^\]]+)\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")
HEADING: Final = re.compile(r"^## (.+)$", re.M)


@dataclass(frozen=True)
class HelpPage:
    """One page: its name (`how-to/gpus`, as an address says it) and its text, as it was written."""

    name: str
    source: str

    @property
    def title(self) -> str:
        """Its first heading."""
        return self.source.partition("\n")[0].removeprefix("# ").strip()

    @property
    def section(self) -> str:
        """The folder that it lies in, "" at the top."""
        return self.name.rpartition("/")[0]

    def shown(self) -> str:
        """What stands below its title, as Markdown with HTML for links."""
        return _outside_code(self.source.partition("\n")[2], self._fit)

    def contents(self) -> list[tuple[str, str]]:
        """Titles and anchors of its parts."""
        return [(title, _anchor(title)) for title in HEADING.findall(FENCE.sub("", self.source))]

    def _fit(self, text: str) -> str:
        return LINK.sub(self._link, PICTURE.sub("", text))

    def _link(self, match: re.Match[str]) -> str:
        """To a document of ours a link within this tab, to anything else its path in words."""
        label, target, anchor = match.groups(default="")
        path = normpath(PurePosixPath(self.section, target))
        name = path.removesuffix(".md")
        return link(label, name, anchor) if name in documents() else f"{label} (`{path.removeprefix('../')}`)"


def link(label: str, name: str, anchor: str = "") -> str:
    """To a document; `label` may be Markdown."""
    return f'<a href="{ADDRESS}?document={escape(name)}{escape(anchor)}" target="_self">{label}</a>'


def generated(name: str, description: Callable[[], Description]) -> HelpPage:
    """A page of `GENERATED`; that of configs lists the workspace's own classes, too."""
    match name:
        case "reference/config":
            return HelpPage(name, _maker(name).page(description()))
        case "reference/api":
            return HelpPage(name, _maker(name).page(linked=False))
    return HelpPage(name, _maker(name).page())


def _maker(name: str) -> Any:
    return import_module(f"scalebook.docs.generate.{GENERATED[name]}")


@cache
def documents() -> dict[str, HelpPage]:
    """All of them by name, each section in the order in which its index names its pages; of what is generated the
    beginning."""
    by_name: dict[str, HelpPage] = {}
    for section in ("", *SECTIONS):
        folder = DOCS / section
        index = folder / "index.md"
        named = LINK.findall(index.read_text(encoding="utf-8")) if index.is_file() else []
        pages = [index, *(folder / target for _, target, _ in named), *sorted(folder.glob("*.md"))]
        for page in dict.fromkeys(page for page in pages if page.parent == folder and page.is_file()):
            name = page.relative_to(DOCS).with_suffix("").as_posix()
            by_name[name] = HelpPage(name, page.read_text(encoding="utf-8"))
        by_name |= {name: HelpPage(name, _maker(name).TITLE) for name in GENERATED if name.startswith(f"{section}/")}
    return by_name


def rows(chosen: HelpPage) -> list[list[HelpPage]]:
    """What stands above a document: the indexes of the sections, and the pages of its own."""
    every = documents()
    heads = [every[name] for name in (START, *(f"{section}/index" for section in SECTIONS)) if name in every]
    beside = [one for one in every.values() if one.section == chosen.section and one not in heads]
    return [heads, beside] if 0 < len(beside) <= MOST else [heads]


def _outside_code(text: str, change: Callable[[str], str]) -> str:
    """With `change` of all that stands outside of fences."""
    parts, begin = [], 0
    for fence in FENCE.finditer(text):
        parts += [change(text[begin : fence.start()]), fence.group()]
        begin = fence.end()
    return "".join([*parts, change(text[begin:])])


def _anchor(title: str) -> str:
    """As Streamlit makes one of a heading."""
    return re.sub(r"[^\w]+", "-", title.lower()).strip("-")
