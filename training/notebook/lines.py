"""Lines of a file, with their ends, as CommonMark counts them."""

import re
from typing import Final

LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


def split_lines(text: str) -> list[str]:
    """The lines of `text` with their ends; joined they are `text`. Only CR LF, CR and LF end a line."""
    return LINE.findall(text)


def line_end(text: str) -> str:
    """The first line end in `text`; LF where it has none."""
    match = re.search(r"\r\n|\r|\n", text)
    return match.group() if match else "\n"
