"""How old the gradients were that were applied: a histogram of staleness, drawn as HTML."""

from collections.abc import Sequence
from html import escape

import streamlit as st

from scalebook.app.shared import charts, html
from scalebook.app.shared.charts import PALETTE
from scalebook.training.ps.coordination.measures import PushRecord

LABELS = 16
"""Most labels below the bars."""


def draw(record: PushRecord) -> None:
    """Under a heading of its own; nothing before the first push."""
    if any(any(row) for row in record.counts):
        st.header("Staleness")
        html.draw(histogram(record.counts))


def histogram(counts: Sequence[Sequence[int]]) -> str:
    """How old the gradients were: `counts[worker][i]` pushes of staleness i, the last bin "or more"; some are counted.

    A column is as high as its share of all pushes, and divided by worker, where there are colours for all of them.
    """
    if len(counts) > len(PALETTE):
        counts = [[sum(column) for column in zip(*counts, strict=True)]]
    used = max(i + 1 for row in counts for i, count in enumerate(row) if count)
    totals = [sum(row[i] for row in counts) for i in range(used)]
    every = -(-used // LABELS)  # ceil
    columns = "".join(_column(i, counts, totals, labelled=i % every == 0) for i in range(used))
    names = [(f"worker {worker}", charts.worker_colour(worker)) for worker in range(len(counts))]
    return (
        (charts.legend(names) if len(counts) > 1 else "")
        + f'<div class="sb-hist">{columns}</div>'
        + '<div class="sb-hist-title">staleness: updates by others between pull and push</div>'
    )


def _column(i: int, counts: Sequence[Sequence[int]], totals: Sequence[int], *, labelled: bool) -> str:
    share, height = totals[i] / sum(totals), totals[i] / max(totals)
    name = f"{i}+" if i == len(counts[0]) - 1 else str(i)
    whose = [f"worker {worker}" for worker in range(len(counts))] if len(counts) > 1 else ["all"]
    parts = "".join(
        f'<i style="flex:{row[i]};background:{charts.worker_colour(worker)}" title="{whose[worker]}: {row[i]:,}"></i>'
        for worker, row in enumerate(counts)
        if row[i]
    )
    shown = (f"{share:.0%}" if share >= 0.005 else "<1%") if labelled and totals[i] else ""
    return (
        f'<div title="staleness {name}: {totals[i]:,} pushes, {share:.1%}"><b>{escape(shown)}</b>'
        f'<div style="height:{0.82 * height:.1%}">{parts}</div><span>{name if labelled else ""}</span></div>'
    )
