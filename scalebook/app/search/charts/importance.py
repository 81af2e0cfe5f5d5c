"""Which dimension decides whether a trial is a good one."""

from collections.abc import Mapping

import plotly.graph_objects as go

from scalebook.app.search.charts import looks
from scalebook.app.shared import charts
from scalebook.app.shared.words import spoken

READING = (
    "How much each dimension decides whether a trial is among the best tenth (PED-ANOVA; the shares add up to "
    "1). A dimension that the search has narrowed down looks less important than it is."
)


def draw(shares: Mapping[str, float], dark: bool) -> go.Figure:
    """Bars, the largest on top."""
    names = list(shares)[::-1]
    figure = looks.figure(dark, 92 + 44 * len(names))
    figure.add_trace(
        go.Bar(
            x=[shares[name] for name in names],
            y=[spoken(name) for name in names],
            orientation="h",
            marker={"color": charts.PALETTE[0], "cornerradius": 3},
            text=[f"{shares[name]:.0%}" if shares[name] >= 0.005 else "<1%" for name in names],
            textposition="outside",
            textfont={"color": looks.ink(dark)},
            cliponaxis=False,
            hoverinfo="skip",
        )
    )
    top = max(shares.values(), default=1.0)
    figure.update_xaxes(title_text="share", range=[0, min(1.0, top) * 1.12], tickformat=".0%")
    figure.update_yaxes(tickfont={"size": 13, "color": looks.ink(dark)}, ticklabelstandoff=8)
    figure.update_layout(showlegend=False)
    return figure
