"""Bars drawn as HTML: they change in place once a second, where a chart of the chart library is built anew (80 ms)."""

from collections.abc import Mapping, Sequence
from html import escape

from scalebook.app.shared.components.charts import LIGHT_PARTS, PALETTE, PARTS

DARK = ";color:#1c2327"


def time_split(rows: Sequence[tuple[str, Mapping[str, float]]]) -> str:
    """One bar a row: the shares (0 to 1) of compute, wait, communicate and data; what is missing to 1 stays empty."""
    return legend(list(PARTS.items())) + '<div class="sb-split">' + "".join(_row(*row) for row in rows) + "</div>"


def _row(name: str, shares: Mapping[str, float]) -> str:
    known = [(part, shares[part], colour) for part, colour in PARTS.items() if shares.get(part, 0.0) > 0]
    parts = "".join(
        f'<i style="width:{share:.2%};background:{colour}{DARK if part in LIGHT_PARTS else ""}" '
        f'title="{part} {share:.1%}">'
        f"{f'{share:.0%}' if share >= 0.07 else ''}</i>"
        for part, share, colour in known
    )
    return f"<span>{escape(name)}</span><div>{parts}</div>"


def colour(worker: int) -> str:
    """The same in every picture."""
    return PALETTE[worker % len(PALETTE)]


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """A square of its colour before each name."""
    return (
        '<div class="sb-legend">'
        + "".join(f'<span><i style="background:{colour}"></i>{escape(name)}</span>' for name, colour in entries)
        + "</div>"
    )
