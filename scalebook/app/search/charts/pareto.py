"""Two objectives against each other, and the front of those that no other trial beats in both."""

from collections.abc import Sequence

import plotly.graph_objects as go

from scalebook.app.search.charts import looks
from scalebook.app.search.services import search_view
from scalebook.training.config.search.types import SearchSpec
from scalebook.training.search.map.landscape import value
from scalebook.training.search.map.shades import LOG_RATIO
from scalebook.training.search.study.trials import TrialRecord

HEIGHT = 470


def reading(spec: SearchSpec) -> str:
    """One line; with one objective the seconds stand beside it as information."""
    if len(spec.objectives) > 1:
        return (
            "The line is the Pareto front: no other trial is better in both. Dim dots are dominated. Click a dot "
            "to open its trial."
        )
    alone = "" if spec.exclusive or spec.is_simulated else " Trials ran side by side and slowed each other down."
    return (
        "Quality by the seconds that a trial took. The line is the Pareto front; the search optimizes quality "
        f"only.{alone} Click a dot to open its trial."
    )


def draw(records: Sequence[TrialRecord], spec: SearchSpec, dark: bool) -> go.Figure | None:
    """The chart of quality against cost; None before the first trial with both figures."""
    placed = [(at, record) for record in records if (at := _place(record, spec)) is not None]
    if not placed:
        return None
    front = _front(placed, spec)
    numbers = {record.number for _, record in front}
    rest = [pair for pair in placed if pair[1].number not in numbers]
    figure = looks.figure(dark, HEIGHT)
    figure.add_trace(_dots(rest, spec, dark, "dominated", looks.dim(dark), 6.5, 0.4))
    x, y = [at[0] for at, _ in front], [at[1] for at, _ in front]
    accent = "#0b6e75" if not dark else "#5cc3c6"
    figure.add_trace(
        go.Scatter(
            x=x, y=y, mode="lines", showlegend=False, hoverinfo="skip",
            line={"shape": "hv" if _lower(spec)[0] else "vh", "color": accent, "width": 2},
        )
    )  # fmt: skip
    figure.add_trace(_dots(front, spec, dark, "front", accent, 10, 1.0))
    for update, name, values in (
        (figure.update_xaxes, _names(spec)[0], [at[0] for at, _ in placed]),
        (figure.update_yaxes, _names(spec)[1], [at[1] for at, _ in placed]),
    ):
        update(title_text=name, **_range(values))
    return figure


def _names(spec: SearchSpec) -> tuple[str, str]:
    """The names of the two axes: the cost across, the quality upwards."""
    cost = spec.objectives[1].name if len(spec.objectives) > 1 else "seconds"
    return search_view.amount(spec, cost), search_view.amount(spec, spec.objectives[0].name)


def _lower(spec: SearchSpec) -> tuple[bool, bool]:
    return (spec.objectives[1].lower if len(spec.objectives) > 1 else True, spec.objectives[0].lower)


def _place(record: TrialRecord, spec: SearchSpec) -> tuple[float, float] | None:
    first = value(record)
    second = value(record, 1) if len(spec.objectives) > 1 else record.seconds
    return None if first is None or second is None else (second, first)


Placed = tuple[tuple[float, float], TrialRecord]


def _front(known: Sequence[Placed], spec: SearchSpec) -> list[Placed]:
    """The trials that none betters in both, from the cheapest to the dearest."""
    across, up = _lower(spec)
    ranked = sorted(known, key=lambda pair: (pair[0][0] if across else -pair[0][0], pair[0][1] if up else -pair[0][1]))
    front: list[Placed] = []
    for pair in ranked:
        if not front or (pair[0][1] < front[-1][0][1] if up else pair[0][1] > front[-1][0][1]):
            front.append(pair)
    return front


def _dots(
    mine: Sequence[Placed], spec: SearchSpec, dark: bool, name: str, colour: str, size: float, opacity: float
) -> go.Scatter:
    return go.Scatter(
        x=[at[0] for at, _ in mine],
        y=[at[1] for at, _ in mine],
        mode="markers",
        name=name,
        marker={"size": size, "color": colour, "opacity": opacity, "line": {"width": 0.7, "color": looks.ground(dark)}},
        text=[search_view.hover(record, spec) for _, record in mine],
        customdata=[record.number for _, record in mine],
        hovertemplate="%{text}<extra></extra>",
    )


def _range(values: Sequence[float]) -> dict[str, object]:
    """An axis range that contains all values; logarithmic where they span much, so that the worst do not flatten the
    rest."""
    low, high = min(values), max(values)
    if low == high:
        return {}
    if low > 0 and high / low >= LOG_RATIO:
        room = (high / low) ** 0.08
        return looks.log_axis(low / room, high * room)
    room = 0.08 * (high - low)
    return {"range": [low - room, high + room]}
