"""The README, which every installation has, made fit for a page."""

import re
from functools import cache
from importlib.metadata import metadata
from pathlib import Path
from typing import Final

import scalebook

PICTURES: Final = re.compile(r"^(?:\|.*)?!\[[^\]]*\]\([^)]*\).*\n", re.M)
EMPTY_TABLE: Final = re.compile(r"^\| \| \|\n\|---\|---\|\n(?!\|)", re.M)
LINK: Final = re.compile(r"\[([^\]]+)\]\((?!\w+:|#)([^)]+)\)")
FENCE: Final = re.compile(r"^```.*?^```", re.M | re.S)
HEADING: Final = re.compile(r"^## (.+)$", re.M)


@cache
def readme_text() -> str:
    """From its first section on, without pictures; links to files name the file. In a checkout that of the folder, else
    the one of the installed package."""
    beside = Path(scalebook.__file__).parents[1] / "README.md"
    whole = beside.read_text(encoding="utf-8") if beside.is_file() else metadata("scalebook")["Description"]
    begun = whole[whole.index("\n") :] if whole.startswith("# ") else whole
    return LINK.sub(r"\1 (`\2`)", EMPTY_TABLE.sub("", PICTURES.sub("", begun)))


def readme_contents(whole: str) -> str:
    """A line of links to its sections."""
    titles = HEADING.findall(FENCE.sub("", whole))
    return " · ".join(f"[{title}](#{_anchor(title)})" for title in titles)


def _anchor(title: str) -> str:
    """As Streamlit makes one of a heading."""
    return re.sub(r"[^\w]+", "-", title.lower()).strip("-")
