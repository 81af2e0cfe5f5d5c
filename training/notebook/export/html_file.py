"""A document as one HTML file: no script, nothing fetched, light and dark as the reader's system, plain in print."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Final

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
from scalebook.training.notebook.export.exported_notes import rendered
from scalebook.training.notebook.fences import first_heading
from scalebook.training.tracking import drawing

STYLES: Final = (Path(__file__).with_name("page.css"), drawing.STYLE)
POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
"""What a browser may do for the page, whatever stands in it: apply its own style, draw pictures that it holds."""
WORDS: Final = frozenset({"finished", "failed", "running", "stale", "supported", "refuted", "not resolved"})
"""States with a colour."""


def as_html(document: Document) -> str:
    """The whole file."""
    style = "".join(path.read_text(encoding="utf-8") for path in STYLES)
    title = escape(document.title)
    first = next((block for block in document.blocks), None)
    named = isinstance(first, UserMarkdown) and first_heading(first.source) is not None
    parts = [] if named else [f"<h1>{title}</h1>"]
    open_cell = False
    for block in document.blocks:
        begins = isinstance(block, CellHead)
        if open_cell and (begins or isinstance(block, UserMarkdown | Heading)):
            parts.append("</section>")
            open_cell = False
        if begins:
            parts.append('<section class="cell">')
            open_cell = True
        parts.append(_block(block))
    source = SourceText(f"The notebook itself, {document.name}", document.text, "markdown")
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f'<meta name="color-scheme" content="light dark">\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n'
        + "\n".join(parts)
        + ("</section>" if open_cell else "")
        + f'\n<div class="once">{_source(source)}</div>\n<footer>{escape(document.name)}, exported by Scalebook on '
        f"{escape(document.exported_at)}</footer>\n</main>\n</body>\n</html>\n"
    )


def _block(block: Block) -> str:
    match block:
        case UserMarkdown():
            return f'<div class="note">{rendered(block.source)}</div>'
        case CellHead():
            chips = "".join(_chip(word) for word in block.states)
            anchor = escape(place(block.kind, block.name))
            kind = f'<span class="kind">{escape(block.kind)}</span>'
            return f'<h2 class="head" id="{anchor}">{kind} {escape(block.name)} {chips}</h2>'
        case Summary():
            return _summary(block)
        case Heading():
            return f"<h2>{escape(block.text)}</h2>"
        case Facts():
            pairs = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in block.pairs)
            return f'<dl class="facts">{pairs}</dl>'
        case SourceText():
            return _source(block)
        case DataTable():
            return _table(block)
        case Chart():
            return f'<figure><div class="wide">{block.svg}</div></figure>'
        case Remark():
            return f'<p class="remark{" trouble" if block.trouble else ""}">{escape(block.text)}</p>'


def _summary(summary: Summary) -> str:
    note = f'<p class="remark">{escape(summary.note)}</p>' if summary.note else ""
    headlines = "".join(_headline(headline, bool(note)) for headline in summary.headlines)
    return f'<section class="summary"><h2>Results</h2>{note}{headlines}</section>'


def _headline(headline: Headline, noted: bool) -> str:
    chips = "".join(_chip(word) for word in headline.states)
    sides = "".join(f"<span>{escape(side)}</span>" for side in headline.details)
    note = "" if noted else escape(headline.note)
    below = "".join(f'<p class="remark">{part}</p>' for part in (sides, note) if part)
    link = f'<a href="#{escape(place(headline.kind, headline.name))}">{escape(headline.sentence)}</a>'
    return f'<div class="headline"><p>{chips} {link} <span class="kind">{escape(headline.name)}</span></p>{below}</div>'


def _chip(word: str) -> str:
    colour = f" {word}".replace("not ", "not-") if word in WORDS else ""
    return f'<span class="chip{colour}">{escape(word)}</span>'


def _source(source: SourceText) -> str:
    code = f"<pre><code>{escape(source.text)}</code></pre>"
    return f"<details><summary>{escape(source.title)}</summary>{code}</details>" if source.folded else code


def _table(table: DataTable) -> str:
    def row(cells: Sequence[str], tag: str) -> str:
        number = ' class="num"'
        return "".join(
            f"<{tag}{number if i in table.numeric else ''}>{escape(cell)}</{tag}>" for i, cell in enumerate(cells)
        )

    winner = ' class="best"'
    rows = "".join(
        f"<tr{winner if i == table.best else ''}>{row(cells, 'td')}</tr>" for i, cells in enumerate(table.rows)
    )
    head = f"<thead><tr>{row(table.head, 'th')}</tr></thead>"
    return f'<div class="wide"><table>{head}<tbody>{rows}</tbody></table></div>'
