"""The map: value over two dimensions, where nothing trains, where memory ends, and the best ridge."""

import math
from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from app.components import charts
from app.components.search_charts import looks
from app.services import search_view
from training.search.landscape import KINDS, Landscape, landscape, panels, range_of, value
from training.search.scales import Scale, scale
from training.search.trials import TrialRecord
from training.spec.search_types import SearchSpec

PAD = 0.045  # beyond the lowest and the highest value, so that no marker is cut
ACROSS = 3  # panels side by side
ROW, HEAD = 400, 74  # pixels
MOST_PANELS = 9
MANY = 150  # trials from which marks are small
ALONG = 0.86  # of a dotted line, where its constant stands


def reading(spec: SearchSpec, x: str, y: str, by: Sequence[str]) -> str:
    """One line: what is what. Says so where trials that differ in something else lie on top of each other."""
    others = [one.name for one in spec.space if one.name not in (x, y, *by)]
    mixed = f" Trials that differ in {', '.join(others)} lie together; the field is their mean." if others else ""
    iso = " Dotted: constant learning rate / batch size." if (x, y) == ("batch_size", "learning_rate") else ""
    return (
        "Dots are finished trials; the field between them is interpolated and left out where there are none, and where "
        f"trials diverged or had no memory. The line joins the best trial of each column.{iso}{mixed}"
    )


def draw(
    records: Sequence[TrialRecord], spec: SearchSpec, x: str, y: str, by: Sequence[str], dark: bool, objective: int = 0
) -> go.Figure:
    """A panel for each combination of the categories `by`; all share axes and colours."""
    colour = range_of(records, spec, objective)
    parts = [
        landscape(mine, spec, x, y, colour, objective=objective, title=title)
        for title, mine in panels(records, spec, by)
    ]
    columns = min(ACROSS, len(parts)) if len(parts) != 4 else 2
    rows = -(-len(parts) // columns)  # ceil
    found = make_subplots(
        rows, columns, subplot_titles=[one.title for one in parts], shared_xaxes=True, shared_yaxes=True,
        horizontal_spacing=0.025, vertical_spacing=0.09 if rows > 1 else 0,
    )  # fmt: skip
    found.update_annotations(font={"size": 13, "color": looks.ink(dark)})  # so far there are only the panels' titles
    named: set[str] = set()
    for i, part in enumerate(parts):
        place = {"row": i // columns + 1, "col": i % columns + 1}
        for trace in _panel(part, spec, dark, named, scale(spec.dimension(x)), scale(spec.dimension(y))):
            found.add_trace(trace, **place)
        _edge(found, part, dark, place)
        _quotients(found, part, dark, place)
        _star(found, part, records, spec, objective, dark, place, named)
    _axes(found, scale(spec.dimension(x)), scale(spec.dimension(y)), columns, len(parts))
    found.update_layout(template=charts.template(dark), hovermode="closest", height=HEAD + ROW * rows)
    if colour is not None:
        found.update_layout(coloraxis=looks.colour_axis(colour, spec.objectives[objective].name, dark))
    found.update_layout(
        margin={"t": 62 if parts and parts[0].title else 40, "r": 8},
        legend={"y": 1, "yref": "container", "yanchor": "top", "itemsizing": "constant"},
    )
    return found


def _panel(
    part: Landscape, spec: SearchSpec, dark: bool, named: set[str], across: Scale, up: Scale
) -> list[go.Contour | go.Scatter | go.Scattergl]:
    found: list[go.Contour | go.Scatter | go.Scattergl] = []
    if part.field is not None:
        found.append(_field(part, dark))
    found += [_iso(one.x, one.y, dark, named) for one in part.iso]
    if len(part.ridge) > 1:
        found.append(_line(part, dark, named))
    if "finished" in part.trials and "finished" not in named:
        found.append(_finished_key(dark, named))
    for name in KINDS:
        if name in part.trials and name != "waiting":
            found.append(_marks(part, name, spec, dark, named))
    return found


def _field(part: Landscape, dark: bool) -> go.Contour:
    assert part.field is not None
    return go.Contour(
        x=part.field.x.astype(np.float32),
        y=part.field.y.astype(np.float32),
        z=part.field.shade.astype(np.float32),
        coloraxis="coloraxis",
        contours={"coloring": "heatmap", "start": 0.1, "end": 0.9, "size": 0.1},
        line={"width": 0.5, "color": "rgba(255,255,255,0.45)" if not dark else "rgba(20,24,27,0.5)"},
        connectgaps=False,
        hoverinfo="skip",
        showlegend=False,
        opacity=0.85,
    )


def _marks(part: Landscape, name: str, spec: SearchSpec, dark: bool, named: set[str]) -> go.Scattergl:
    at, mine = part.at[name], part.trials[name]
    many = sum(len(each) for each in part.trials.values()) > MANY
    marker = looks.marker(name, dark, 6 if many else None)
    legend = _legend(name, looks.LOOKS[name].word, named)
    if name == "finished":
        marker |= {
            "color": part.shade.astype(np.float32), "coloraxis": "coloraxis", "size": 6.5 if many else 9,
            "line": {"width": 0.9, "color": looks.ground(dark)},
        }  # fmt: skip
        legend |= {"showlegend": False}  # it would be black there
    return go.Scattergl(
        x=at[:, 0].astype(np.float32),
        y=at[:, 1].astype(np.float32),
        mode="markers",
        marker=marker,
        text=[search_view.hover(one, spec) for one in mine],
        hovertemplate="%{text}<extra></extra>",
        **legend,
    )


def _finished_key(dark: bool, named: set[str]) -> go.Scatter:
    """What a finished trial looks like in the legend: a middling one."""
    marker = {"symbol": "circle", "size": 9, "color": looks.shade(0.6, dark), "line": {"width": 0}}
    return go.Scatter(x=[None], y=[None], mode="markers", marker=marker, **_legend("finished", "finished", named))


def _legend(key: str, word: str, named: set[str]) -> dict[str, object]:
    first = key not in named
    named.add(key)
    return {"name": word, "legendgroup": key, "showlegend": first}


def _line(part: Landscape, dark: bool, named: set[str]) -> go.Scatter:
    return go.Scatter(
        x=part.ridge[:, 0], y=part.ridge[:, 1], mode="lines", hoverinfo="skip",
        line={"color": looks.ink(dark), "width": 1.8}, **_legend("ridge", "best of each column", named),
    )  # fmt: skip


def _iso(x: tuple[float, float], y: tuple[float, float], dark: bool, named: set[str]) -> go.Scatter:
    return go.Scatter(
        x=x, y=y, mode="lines", hoverinfo="skip", line={"color": looks.dim(dark), "width": 1.1, "dash": "dot"},
        **_legend("iso", "rate / batch", named),
    )  # fmt: skip


def _quotients(found: go.Figure, part: Landscape, dark: bool, place: dict[str, int]) -> None:
    """Each dotted line's constant, near its upper end and above all marks."""
    for one in part.iso:
        found.add_annotation(
            x=one.x[0] + ALONG * (one.x[1] - one.x[0]), y=one.y[0] + ALONG * (one.y[1] - one.y[0]), showarrow=False,
            text=f"10<sup>{round(math.log10(one.quotient))}</sup>", bgcolor=looks.ground(dark), opacity=0.85,
            borderpad=0, font={"size": 10, "color": looks.dim(dark)}, **place,
        )  # fmt: skip


def _edge(found: go.Figure, part: Landscape, dark: bool, place: dict[str, int]) -> None:
    """The memory wall: from there on a shaded band."""
    if part.wall is None:
        return
    colour = looks.LOOKS["out of memory"].colour(dark)
    found.add_vrect(
        x0=part.wall, x1=1 + PAD, fillcolor=colour, opacity=0.1, line_width=0, layer="below", **place,
    )  # fmt: skip
    found.add_vline(x=part.wall, line={"color": colour, "width": 1.4}, layer="below", **place)
    found.add_annotation(
        x=part.wall, y=0, text="out of memory", showarrow=False, textangle=-90, xanchor="left", yanchor="bottom",
        font={"size": 11, "color": colour}, **place,
    )  # fmt: skip


def _star(
    found: go.Figure, part: Landscape, records: Sequence[TrialRecord], spec: SearchSpec, objective: int, dark: bool,
    place: dict[str, int], named: set[str],
) -> None:  # fmt: skip
    """The best trial of all, in the panel that has it."""
    lower = spec.objectives[objective].lower
    known = [(each, one) for one in records if (each := value(one, objective)) is not None]
    if not known:
        return
    winner = (min if lower else max)(known, key=lambda pair: pair[0])[1]
    mine = [i for i, one in enumerate(part.trials.get("finished", [])) if one.number == winner.number]
    for i in mine:
        at = part.at["finished"][i]
        found.add_trace(
            go.Scattergl(
                x=[at[0]], y=[at[1]], mode="markers", hoverinfo="skip",
                marker={
                    "symbol": "star", "size": 17, "color": "#f2b630", "line": {"width": 1.2, "color": looks.ink(False)},
                },
                **_legend("best", "best", named),
            ),
            **place,
        )  # fmt: skip


def _axes(found: go.Figure, across: Scale, up: Scale, columns: int, panels_drawn: int) -> None:
    """Shared ranges; values and names only at the left and below the lowest panel of each column."""
    for name, one, update in (("x", across, found.update_xaxes), ("y", up, found.update_yaxes)):
        ticks = one.ticks()
        update(
            range=[-PAD, 1 + PAD], tickvals=[at for at, _ in ticks], ticktext=[label for _, label in ticks],
            zeroline=False, constrain="domain",
        )  # fmt: skip
        words = one.dimension.name.replace("_", " ") if "." not in one.dimension.name else one.dimension.name
        if name == "x":
            for i in range(max(0, panels_drawn - columns), panels_drawn):
                found.update_xaxes(title_text=words, showticklabels=True, row=i // columns + 1, col=i % columns + 1)
        else:
            found.update_yaxes(title_text=words, col=1)
