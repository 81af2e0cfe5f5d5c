"""Tables of results in a notebook's text: written by the runs, between two comments, and never typed.

    <!-- results: NAME -->                                   NAME is a claim or a comparison
    (a plain Markdown table)
    <!-- end of results: runs 1a2b3c4d, table 5e6f7a8b -->   digests of the ids of its runs and of the text above

So a code host shows the table, and anyone who has the runs can check that it is of them.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from scalebook.training.base import Problem
from scalebook.training.experiments import classes
from scalebook.training.notebook import edit
from scalebook.training.notebook.cells import Note, Notebook
from scalebook.training.notebook.claims import claim_table
from scalebook.training.notebook.claims.evidence import EvidenceReader
from scalebook.training.notebook.claims.judging import Judgement, judge_all
from scalebook.training.notebook.comparison import Comparison, compare
from scalebook.training.notebook.comparison_table import filled, heading
from scalebook.training.notebook.fences import comments
from scalebook.training.notebook.lines import line_end, split_lines
from scalebook.training.notebook.notebook_problems import CellProblem

BEGIN: Final = re.compile(r"<!-- results: ([\w.+-]+) -->")
END: Final = re.compile(r"<!-- end of results(?:: runs ([0-9a-f]{8}), table ([0-9a-f]{8}))? -->")
COMMAND: Final = "scalebook notebook tables"


@dataclass(frozen=True)
class Region:
    """Where the results of `name` are written: the lines `begin` to `end` of a cell, both comments among them."""

    cell: int
    begin: int
    end: int | None
    """None where it has no end."""
    name: str
    text: str = ""
    runs: str = ""
    digest: str = ""


@dataclass(frozen=True)
class Table:
    """The table by the current runs; `runs` is "" if there are none."""

    text: str
    runs: str


def regions(nb: Notebook) -> list[Region]:
    """The regions of a notebook, in its order."""
    marked = []
    for place, cell in enumerate(nb.cells):
        if isinstance(cell, Note) and "<!-- results:" in cell.source:
            marked += list(_regions(place, cell.source))
    return marked


def tables(evidence: EvidenceReader, judged: Mapping[str, Judgement] | None = None) -> dict[str, Table]:
    """The tables of the claims and comparisons for which the notebook has a region, by name."""
    wanted = {region.name for region in regions(evidence.nb)}
    if not wanted:
        return {}
    judged = judge_all(evidence) if judged is None else judged
    by_name = {name: _of_claim(judgement) for name, judgement in judged.items() if name in wanted}
    for cell in evidence.nb.comparisons():
        if cell.name in wanted:
            by_name[cell.name] = _of_comparison(
                compare(evidence.reader, evidence.notebook, evidence.nb, cell, evidence.description, judged=judged)
            )
    return by_name


def fill(nb: Notebook, by_name: Mapping[str, Table]) -> Notebook:
    """The notebook with the tables in their places; where there are no runs, the old text stays."""
    for region in reversed(regions(nb)):
        table = by_name.get(region.name)
        if table is None or not table.runs or region.end is None:
            continue
        source = nb.cells[region.cell].source
        lines = split_lines(source)
        mark = f"<!-- end of results: runs {table.runs}, table {_digest(table.text)} -->"
        own = f"\n{table.text}\n\n{mark}\n".replace("\n", line_end(source))
        last = lines[region.end]
        own = own if last.endswith(("\n", "\r")) else own.rstrip("\r\n")
        text = "".join([*lines[: region.begin + 1], own, *lines[region.end + 1 :]])
        nb = nb if text == source else edit.replace_note(nb, region.cell, text)
    return nb


@dataclass(frozen=True)
class WrittenResult:
    """The result of a claim as its runs have written it: its `table` has the head first."""

    statement: str
    states: Sequence[str]
    table: Sequence[Sequence[str]]


def written(nb: Notebook) -> dict[str, WrittenResult]:
    """The results of claims that runs have written into the notebook, by name; none that was changed since."""
    claims = {claim.name for claim in nb.claims()}
    return {
        region.name: result
        for region in regions(nb)
        if region.name in claims and region.digest and region.digest == _digest(region.text)
        if (result := _parsed(region.text)) is not None
    }


def _parsed(text: str) -> WrittenResult | None:
    """What `_of_claim` has written."""
    first, _, rest = text.partition("\n\n")
    line = re.fullmatch(r"(.*): \*\*(.*)\*\*", first, re.DOTALL)
    head, _, *rows = [_row(line) for line in rest.splitlines()] or [[], []]
    if line is None or not head or any(len(row) != len(head) for row in rows):
        return None
    return WrittenResult(_unescaped(line[1]), line[2].split(", "), [head, *rows])


def _row(line: str) -> list[str]:
    return [_unescaped(cell.strip()) for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


@dataclass(frozen=True)
class ResultsProblem(CellProblem):
    """A problem of results in a note, the cell at this index."""

    cell: int = 0


def problems(nb: Notebook, by_name: Mapping[str, Table]) -> list[ResultsProblem]:
    """Tables that are from other runs, or were typed. Without runs only the latter can be told."""
    starts = nb.lines()
    mistakes = []
    for region in regions(nb):
        problem = _problem(nb, region, by_name.get(region.name))
        if problem is not None:
            line = starts[region.cell] + region.begin
            mistakes.append(ResultsProblem(f"results of {region.name}", problem, line, region.cell))
    return mistakes


def without_marks(source: str) -> str:
    """A note as it is read: Markdown without the two comments."""
    if "<!-- results:" not in source:
        return source
    lines = split_lines(source)
    for begin, end, text in comments(source):
        if BEGIN.fullmatch(text) or END.fullmatch(text):
            lines[begin:end] = [line_end(source)] * (end - begin)
    return "".join(lines)


def _problem(nb: Notebook, region: Region, now: Table | None) -> Problem | None:
    names = [*(claim.name for claim in nb.claims()), *(comparison.name for comparison in nb.comparisons())]
    if region.name not in names:
        return Problem(
            "unknown-name",
            "results",
            "have a name that is not a claim or comparison of this notebook",
            classes.suggestion(region.name, names),
        )
    if region.end is None:
        return Problem(
            "missing", "results", "have no end", "Add <!-- end of results --> on a separate line below the results."
        )
    remedy = f"Run `{COMMAND} FILE` to write the results."
    if region.text and region.digest != _digest(region.text):
        what = "were changed by hand" if region.digest else "were not written by runs"
        return Problem("outdated-results", "results", what, remedy, "warning")
    if now is None or not now.runs:
        return None
    if region.runs != now.runs:
        return Problem(
            "outdated-results",
            "results",
            "are from other runs" if region.text else "are not written",
            remedy,
            "warning",
        )
    return (
        None
        if region.text == now.text
        else Problem("outdated-results", "results", "differ from what these runs show", remedy, "warning")
    )


def _regions(cell: int, source: str) -> Iterator[Region]:
    lines = split_lines(source)
    open_: Region | None = None
    for begin, _, text in comments(source):
        if started := BEGIN.fullmatch(text):
            if open_ is not None:
                yield open_
            open_ = Region(cell, begin, None, started.group(1))
        elif (ended := END.fullmatch(text)) and open_ is not None:
            body = "".join(lines[open_.begin + 1 : begin]).replace("\r\n", "\n").strip()
            yield Region(cell, open_.begin, begin, open_.name, body, ended.group(1) or "", ended.group(2) or "")
            open_ = None
    if open_ is not None:
        yield open_


def _of_claim(judgement: Judgement) -> Table:
    runs = [run for row in judgement.rows for run in row.evidence.run_ids]
    statement = f"{_plain(judgement.statement)}: **{', '.join(claim_table.verdicts(judgement))}**"
    rows = _markdown(claim_table.head(judgement), claim_table.cells(judgement), claim_table.numeric(judgement))
    return Table(f"{statement}\n\n{rows}", _of_runs(runs))


def _of_comparison(comparison: Comparison) -> Table:
    columns = filled(comparison)
    head = [f"{column.above} {column.head}".strip() for column in columns]
    rows = [[column.cell(row) for column in columns] for row in comparison.rows]
    numeric = [place for place, column in enumerate(columns) if not column.left_aligned]
    runs = [run for row in comparison.rows for run in row.run_ids]
    return Table(f"{_plain(heading(comparison))}\n\n{_markdown(head, rows, numeric)}", _of_runs(runs))


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[int]) -> str:
    rules = ["---:" if place in numeric else "---" for place in range(len(head))]
    lines = [[_plain(cell) for cell in head], rules, *([_plain(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _plain(text: str) -> str:
    """With what Markdown would take for markup escaped."""
    return re.sub(r"([\\|*_`<\[])", r"\\\1", text)


def _unescaped(text: str) -> str:
    return re.sub(r"\\([\\|*_`<\[])", r"\1", text)


def _of_runs(runs: Sequence[str]) -> str:
    return _digest("\n".join(sorted(set(runs)))) if runs else ""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
