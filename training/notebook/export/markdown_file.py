"""A document as Markdown, its charts as SVG files beside it. Notes and configs stand there as they were written."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import quote

from scalebook.training.notebook.export.document import (
    Block,
    CellHead,
    Chart,
    DataTable,
    Document,
    Facts,
    Heading,
    Headline,
    Remark,
    SourceText,
    Summary,
    UserMarkdown,
    place,
)
from scalebook.training.notebook.fences import first_heading
from scalebook.training.tracking import drawing

SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>#|!&~$])")


@dataclass(frozen=True)
class MarkdownExport:
    """The text, and its pictures by their file names, in the folder `pictures` that was given."""

    text: str
    pictures: Mapping[str, str]


def as_markdown(document: Document, pictures: str) -> MarkdownExport:
    """The document as Markdown. `pictures` is the folder of the charts, relative to the text's."""
    first = document.blocks[0] if document.blocks else None
    named = isinstance(first, UserMarkdown) and first_heading(first.source) is not None
    parts = [] if named else [f"# {plain(document.title)}"]
    drawn: dict[str, str] = {}
    linked = {(one.kind, one.name) for one in document.headlines}
    for block in document.blocks:
        if isinstance(block, CellHead) and (block.kind, block.name) in linked:
            parts.append(f'<a id="{place(block.kind, block.name)}"></a>')
        if isinstance(block, Chart):
            name = f"chart-{len(drawn) + 1}.svg"
            drawn[name] = drawing.as_file(block.svg)
            parts.append(f"![{plain(block.title)}]({quote(pictures)}/{name})")
        else:
            parts.append(_block(block))
    parts.append(f"*{plain(document.name)}, exported by Scalebook on {plain(document.exported_at)}*")
    return MarkdownExport("\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n", drawn)


def plain(words: str) -> str:
    """`words` on one line, escaped: nothing in them is Markdown or HTML."""
    return SPECIAL.sub(r"\\\1", " ".join(words.split()))


def _block(block: Block) -> str:
    match block:
        case UserMarkdown():
            return block.source
        case CellHead():
            return f"## {plain(block.kind)} {plain(block.name)}" + (
                f" ({plain(', '.join(block.states))})" if block.states else ""
            )
        case Heading():
            return f"## {plain(block.text)}"
        case Facts():
            return "\n".join(f"- {plain(name)}: **{plain(value)}**" for name, value in block.pairs)
        case SourceText():
            return _source(block)
        case DataTable():
            return _table(block)
        case Remark():
            return plain(block.text)
        case Summary():
            note = f"{plain(block.note)}.\n\n" if block.note else ""
            headlines = [replace(one, note="") for one in block.headlines] if note else block.headlines
            return f"## Results\n\n{note}{summary_lines(headlines)}"
        case Chart():
            raise AssertionError("charts are files")


def summary_lines(headlines: Sequence[Headline], *, linked: bool = True) -> str:
    """A line for each headline, as a list; `linked` to the cells that show them."""
    return "\n".join(_headline(one, linked) for one in headlines)


def _headline(headline: Headline, linked: bool) -> str:
    name, sentence = plain(headline.name), plain(headline.sentence)
    if linked:
        name = f"[{name}](#{place(headline.kind, headline.name)})"
    states = f"**{plain(', '.join(headline.states))}**: " if headline.states else ""
    more = "".join(f". {plain(text)}" for text in ("; ".join(headline.details), headline.note) if text)
    return f"- {states}{name}: {sentence}{more}"


def _source(source: SourceText) -> str:
    """The text in a code fence that is longer than any within it."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", source.text)), default=0))
    return f"{fence}{source.language}\n{source.text.rstrip()}\n{fence}"


def _table(table: DataTable) -> str:
    rule = ["---:" if i in table.numeric else "---" for i in range(len(table.head))]
    rows = [[plain(cell) for cell in cells] for cells in (table.head, *table.rows)]
    if table.best is not None:
        rows[table.best + 1] = [f"**{cell}**" if cell else cell for cell in rows[table.best + 1]]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (rows[0], rule, *rows[1:]))
