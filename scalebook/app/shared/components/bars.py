"""Bars drawn as HTML: they change in place once a second, where a chart of the chart library is built anew (80 ms)."""

from collections.abc import Mapping, Sequence
from html import escape

from scalebook.app.shared.components.charts import LIGHT_PARTS, PALETTE, PARTS

DARK = ";color:#1c2327"
LABELS = 16
"""Most labels below the bars of a histogram."""


def time_split(rows: Sequence[tuple[str, Mapping[str, float]]]) -> str:
    """One bar a row: the shares (0 to 1) of compute, wait, communicate and data; what is missing to 1 stays empty."""
    return _legend(list(PARTS.items())) + '<div class="sb-split">' + "".join(_row(*row) for row in rows) + "</div>"


def _row(name: str, shares: Mapping[str, float]) -> str:
    known = [(part, shares[part], colour) for part, colour in PARTS.items() if shares.get(part, 0.0) > 0]
    parts = "".join(
        f'<i style="width:{share:.2%};background:{colour}{DARK if part in LIGHT_PARTS else ""}" '
        f'title="{part} {share:.1%}">'
        f"{f'{share:.0%}' if share >= 0.07 else ''}</i>"
        for part, share, colour in known
    )
    return f"<span>{escape(name)}</span><div>{parts}</div>"


def staleness(counts: Sequence[Sequence[int]]) -> str:
    """How old the gradients were: `counts[worker][i]` pushes of staleness i, the last bin "or more"; some are counted.

    A column is as high as its share of all pushes, and divided by worker, where there are colours for all of them.
    """
    if len(counts) > len(PALETTE):
        counts = [[sum(column) for column in zip(*counts, strict=True)]]
    used = max(i + 1 for row in counts for i, count in enumerate(row) if count)
    totals = [sum(row[i] for row in counts) for i in range(used)]
    every = -(-used // LABELS)  # ceil
    columns = "".join(_column(i, counts, totals, labelled=i % every == 0) for i in range(used))
    names = [(f"worker {worker}", colour(worker)) for worker in range(len(counts))]
    return (
        (_legend(names) if len(counts) > 1 else "")
        + f'<div class="sb-hist">{columns}</div>'
        + '<div class="sb-hist-title">staleness: updates by others between pull and push</div>'
    )


def _column(i: int, counts: Sequence[Sequence[int]], totals: Sequence[int], *, labelled: bool) -> str:
    share, height = totals[i] / sum(totals), totals[i] / max(totals)
    name = f"{i}+" if i == len(counts[0]) - 1 else str(i)
    whose = [f"worker {worker}" for worker in range(len(counts))] if len(counts) > 1 else ["all"]
    parts = "".join(
        f'<i style="flex:{row[i]};background:{colour(worker)}" title="{whose[worker]}: {row[i]:,}"></i>'
        for worker, row in enumerate(counts)
        if row[i]
    )
    shown = (f"{share:.0%}" if share >= 0.005 else "<1%") if labelled and totals[i] else ""
    return (
        f'<div title="staleness {name}: {totals[i]:,} pushes, {share:.1%}"><b>{escape(shown)}</b>'
        f'<div style="height:{0.82 * height:.1%}">{parts}</div><span>{name if labelled else ""}</span></div>'
    )


def colour(worker: int) -> str:
    """The same in every picture."""
    return PALETTE[worker % len(PALETTE)]


def _legend(entries: Sequence[tuple[str, str]]) -> str:
    return (
        '<div class="sb-legend">'
        + "".join(f'<span><i style="background:{colour}"></i>{escape(name)}</span>' for name, colour in entries)
        + "</div>"
    )
