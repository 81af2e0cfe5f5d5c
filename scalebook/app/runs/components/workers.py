"""What each worker of a run did: where its time went, how fast it was, what became of its pushes."""

from collections.abc import Callable, Mapping, Sequence

import streamlit as st

from scalebook.app.shared import charts, html, style
from scalebook.app.shared.charts import Series
from scalebook.app.shared.words import ago, figure
from scalebook.training.notebook.cells import Axis
from scalebook.training.planning.quantities import shown
from scalebook.training.ps.coordination.measures import Pushes, PushRecord
from scalebook.training.tracking.reading import MetricCurve

HEIGHT = 300
MOST_ROWS = 64
"""More workers and shards than that are in the artifact `pushes.json`."""
MOST_BARS = 16


def time_split(rows: Sequence[tuple[str, Mapping[str, float]]]) -> None:
    """A bar for all workers, and one for each: (name, part -> share)."""
    known = [(name, dict(shares)) for name, shares in rows if shares]
    if known:
        st.header("Where the time went")
        html.draw(charts.time_split(known[: 1 + MOST_BARS]))
        _rest(len(known) - 1, MOST_BARS)


def throughput(curves: Sequence[MetricCurve], axis: Axis, x_title: str, simulated: bool) -> None:
    """A line for each worker, from the histories of `worker_N/...`. `simulated`: the seconds are those of a clock."""
    if any(curve.values for curve in curves):
        st.header("Throughput by worker")
        numbered = [(int(curve.metric.partition("/")[0].removeprefix("worker_")), curve) for curve in curves]
        series = [
            Series(f"worker {worker}", *curve.on(axis), charts.worker_colour(worker)) for worker, curve in numbered
        ]
        drawn = charts.lines(
            series,
            x_title=x_title,
            y_title=f"samples/{'virtual ' if simulated else ''}s",
            dark=style.dark(),
            height=HEIGHT,
        )
        drawn.update_yaxes(rangemode="tozero")
        charts.draw(drawn, "throughput", f"samples/s of each worker by {axis}")


def pushes(record: PushRecord) -> None:
    """Figures by worker; where there are several shards, by worker and shard in a fold below."""
    if not record.shards:
        return
    st.header("Pushes")
    rows = record.by_worker()
    html.draw(_table(rows[:MOST_BARS], lambda row: [f"worker {row.worker}"], ["Worker"], record))
    _rest(len(rows), MOST_BARS)
    if record.parts > 1:
        several = len({shard.section for shard in record.shards}) > 1
        head = ["Worker", *(["Optimizer"] if several else []), "Shard"]

        def name(row: Pushes) -> list[str]:
            return [f"worker {row.worker}", *([str(row.section)] if several else []), str(row.shard)]

        with st.expander("By shard"):
            html.draw(_table(record.shards[:MOST_ROWS], name, head, None))


def comings(record: PushRecord, ended: bool) -> None:
    """How many workers take part, and who came and left; nothing where nobody did."""
    changes = record.changes
    if not changes:
        return
    st.header("Workers that joined and left" if ended else f"{len(record.there)} workers are taking part")
    words = [f"worker {one.worker} {'joined' if one.joined else 'left'} {ago(one.at)}" for one in changes[-MOST_BARS:]]
    st.caption(" · ".join(reversed(words)))


def _rest(workers: int, shown: int) -> None:
    """Where the others are."""
    if workers > shown:
        st.caption(f"The first {shown} of {workers:,} workers; all are in `pushes.json`, under Files.")


def _table(
    rows: Sequence[Pushes],
    name: Callable[[Pushes], list[str]],
    head: Sequence[str],
    record: PushRecord | None,
) -> str:
    """Of `record` the mean staleness and the memory of a worker are columns more; what nobody measured has no
    column."""
    columns: list[tuple[str, Callable[[Pushes], str]]] = [
        ("applied", lambda row: f"{row.applied:,}"),
        ("dropped", lambda row: f"{row.dropped:,}"),
    ]
    if any(row.duplicates for row in rows):
        columns.append(("duplicates", lambda row: f"{row.duplicates:,}"))
    if record is not None:
        columns.append(("mean staleness", lambda row: figure(record.mean_staleness(row.worker), 3)))
    columns.append(("mean age, ms", lambda row: figure(None if row.age_s is None else 1000 * row.age_s, 3)))
    if any(row.drift is not None for row in rows):
        columns.append(("mean drift", lambda row: figure(row.drift, 3)))
    if any(row.pushed_bytes for row in rows):
        columns.append(("pushed", lambda row: shown(row.pushed_bytes, "B")))
        columns.append(("pulled", lambda row: shown(row.pulled_bytes, "B")))
    if record is not None and any(record.memory_bytes(row.worker) for row in rows):
        columns.append(("peak memory", lambda row: shown(record.memory_bytes(row.worker) or 0, "B")))
    body = [
        [*(html.text(word) for word in name(row)), *(html.number(cell(row)) for _, cell in columns)] for row in rows
    ]
    titles = [*head, *(title for title, _ in columns)]
    return html.table(titles, body, numeric=range(len(head), len(titles)))
