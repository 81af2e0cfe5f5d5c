"""What each worker of a run did, and how much of its machine the run used over time."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

import streamlit as st

from scalebook.app.shared import charts, html, style
from scalebook.app.shared.charts import PALETTE, Series
from scalebook.app.shared.words import ago, figure, plural
from scalebook.training.engine.coordination import measures
from scalebook.training.engine.rules import TOPOLOGIES, graph_of, second_eigenvalue
from scalebook.training.experiments import PeersSettings, Strategy
from scalebook.training.jobs import Usage
from scalebook.training.notebook import Axis
from scalebook.training.pricing import format_quantity, part_record
from scalebook.training.tracking import MetricCurve, names

HEIGHT = 300
MOST_ROWS = 64
"""Rows of the table; all workers and shards are in the artifact `pushes.json`."""
MOST_BARS = 16
GONE = "#9aa3a9"
"""What a config calls the strategy."""


def time_split(rows: Sequence[tuple[str, Mapping[str, float]]]) -> None:
    """Draw where the time went: a bar for all workers, then one for each. `rows`: (name, part -> share)."""
    splits = [(name, dict(shares)) for name, shares in rows if shares]
    if not splits:
        return
    st.header("Where the time went")
    whole, *each = splits
    if len(each) > 1 and all(_percent(shares) == _percent(whole[1]) for _, shares in each):
        html.draw(charts.time_split([whole]))
        st.caption(f"The same chart for each of the {len(each):,} workers.")
        return
    html.draw(charts.time_split(splits[: 1 + MOST_BARS]))
    _rest(len(each), MOST_BARS)


def _percent(shares: Mapping[str, float]) -> dict[str, int]:
    """In whole percent, without what is none."""
    return {part: share for part, value in shares.items() if (share := round(100 * value))}


def throughput(curves: Sequence[MetricCurve], axis: Axis, x_title: str, simulated: bool) -> None:
    """Draw a line for each worker, from the histories of `worker_N/...`. `simulated`: the seconds are virtual."""
    if any(len(curve.values) > 1 for curve in curves):  # of virtual workers there is one value each, at the end
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


def pushes(record: measures.PushRecord) -> None:
    """Draw the table of pushes by worker; with several shards, also by worker and shard, behind a title."""
    if not record.shards:
        return
    st.header("Pushes")
    rows = record.by_worker()
    html.draw(_table(rows[:MOST_BARS], lambda row: [f"worker {row.worker}"], ["Worker"], record))
    _rest(len(rows), MOST_BARS)
    if record.parts > 1:
        several = len({shard.section for shard in record.shards}) > 1
        head = ["Worker", *(["Optimizer"] if several else []), "Shard"]

        def name(row: measures.Pushes) -> list[str]:
            return [f"worker {row.worker}", *([str(row.section)] if several else []), str(row.shard)]

        with st.expander("By shard"):
            html.draw(_table(record.shards[:MOST_ROWS], name, head, None))


def comings(record: measures.PushRecord, ended: bool, died: Collection[int] = ()) -> None:
    """Draw how many workers take part, and which joined, left or `died`; nothing if none did."""
    changes = record.changes
    if not changes:
        return
    there = len(record.there)
    now = f"{plural(there, 'worker')} {'is' if there == 1 else 'are'} taking part"
    st.header("Workers that joined and left" if ended else now)
    words = [
        f"worker {change.worker} {'joined' if change.joined else 'died' if change.worker in died else 'left'} "
        f"{ago(change.at)}"
        for change in changes[-MOST_BARS:]
    ]
    st.caption(" · ".join(reversed(words)))


def _rest(workers: int, limit: int, file: str = names.PUSHES_JSON) -> None:
    """Say where the rows beyond `limit` are."""
    if workers > limit:
        st.caption(f"The first {limit} of {workers:,} workers are shown; all are in `{file}`, under Files.")


def _table(
    rows: Sequence[measures.Pushes],
    name: Callable[[measures.Pushes], list[str]],
    head: Sequence[str],
    record: measures.PushRecord | None,
) -> str:
    """The HTML of a table of pushes. `record` adds columns for mean staleness and memory of each worker; a figure that
    was not measured has no column."""
    columns: list[tuple[str, Callable[[measures.Pushes], str]]] = [
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
        columns.append(("pushed", lambda row: format_quantity(row.pushed_bytes, "B")))
        columns.append(("pulled", lambda row: format_quantity(row.pulled_bytes, "B")))
    if record is not None and any(record.memory_bytes(row.worker) for row in rows):
        columns.append(("peak memory", lambda row: format_quantity(record.memory_bytes(row.worker) or 0, "B")))
    body = [
        [*(html.text(word) for word in name(row)), *(html.number(cell(row)) for _, cell in columns)] for row in rows
    ]
    titles = [*head, *(title for title, _ in columns)]
    return html.table(titles, body, numeric=range(len(head), len(titles)), label="Pushes")


MOST_LABELS = 16
"""Most labels below the bars."""


@dataclass(frozen=True)
class PeerGraph:
    """Who sends to whom in a run of peers, and how fast their graph mixes. `sends`: over all rounds of a period, among
    those that take part; `eigenvalue`: the second one of its weights."""

    topology: str
    sends: Mapping[int, Sequence[int]]
    eigenvalue: float


def peer_graph(strategy: Strategy, workers: int, there: Collection[int]) -> PeerGraph | None:
    """The graph of peers; None for another strategy, and for a topology of a person's own. `there`: the workers that
    take part; empty: all."""
    chosen = strategy.topology if isinstance(strategy, PeersSettings) else None
    if chosen is None or chosen.word not in TOPOLOGIES:
        return None
    topology = TOPOLOGIES[chosen.word]()
    members = sorted(there) or [*range(workers)]
    sends: dict[int, list[int]] = {member: [] for member in members}
    for round_ in range(topology.period(len(members))):
        for member, receivers in graph_of(topology, round_, members).items():
            sends[member] += receivers
    return PeerGraph(topology.name, sends, second_eigenvalue(topology, len(members)))


def peers(graph: PeerGraph, record: measures.PushRecord) -> None:
    """Draw the peers on their graph: who takes part, what each has sent and how long it has waited."""
    st.header("Peers")
    looks = []
    for worker, times in enumerate(record.workers):
        words = f"worker {worker}: {format_quantity(times['pushed_bytes'], 'B')} sent, waited {times['wait']:.3g} s"
        is_there = worker in graph.sends
        looks.append((PALETTE[0] if is_there else GONE, words if is_there else f"{words}, has left"))
    charts.draw(
        charts.graph(graph.sends, looks, dark=style.dark(), height=HEIGHT),
        "peer-graph",
        f"{len(graph.sends)} of {len(record.workers)} peers on the graph {graph.topology}",
    )
    words = f"{graph.topology.replace('_', ' ')}: the second eigenvalue, λ2, is {graph.eigenvalue:.3g}"
    st.caption(
        f"{words}. A round without gradients multiplies the squared consensus distance by {graph.eigenvalue**2:.3g}."
        if graph.eigenvalue
        else f"{words}. All peers have equal parameters after one round, or after one period of rounds."
    )


def staleness(record: measures.PushRecord) -> None:
    """Draw the histogram of the staleness of applied gradients; nothing before the first push."""
    if any(any(row) for row in record.counts):
        st.header("Staleness")
        html.draw(staleness_html(record.counts))


def staleness_html(counts: Sequence[Sequence[int]]) -> str:
    """The HTML of a histogram: `counts[worker][i]` pushes have staleness i, those in the last bin i or more.

    A column's height is its share of all pushes. It is divided by worker if there are enough colours.
    """
    if len(counts) > len(PALETTE):
        counts = [[sum(column) for column in zip(*counts, strict=True)]]
    used = max(i + 1 for row in counts for i, count in enumerate(row) if count)
    totals = [sum(row[i] for row in counts) for i in range(used)]
    every = -(-used // MOST_LABELS)  # ceil
    columns = "".join(_staleness_column(i, counts, totals, labelled=i % every == 0) for i in range(used))
    names = [(f"worker {worker}", charts.worker_colour(worker)) for worker in range(len(counts))]
    return (
        (charts.legend(names) if len(counts) > 1 else "")
        + f'<div class="sb-hist">{columns}</div>'
        + '<div class="sb-hist-title">staleness: updates by others between pull and push</div>'
    )


def _staleness_column(i: int, counts: Sequence[Sequence[int]], totals: Sequence[int], *, labelled: bool) -> str:
    share, height = totals[i] / sum(totals), totals[i] / max(totals)
    name = f"{i}+" if i == len(counts[0]) - 1 else str(i)
    whose = [f"worker {worker}" for worker in range(len(counts))] if len(counts) > 1 else ["all"]
    parts = "".join(
        f'<i style="flex:{row[i]};background:{charts.worker_colour(worker)}" title="{whose[worker]}: {row[i]:,}"></i>'
        for worker, row in enumerate(counts)
        if row[i]
    )
    label = (f"{share:.0%}" if share >= 0.005 else "<1%") if labelled and totals[i] else ""
    return (
        f'<div title="staleness {name}: {totals[i]:,} pushes, {share:.1%}"><b>{escape(label)}</b>'
        f'<div style="height:{0.82 * height:.1%}">{parts}</div><span>{name if labelled else ""}</span></div>'
    )


MOST_LAYERS = 24
MEMORY_COLOURS: Final = dict(zip(part_record.MEMORY, PALETTE, strict=False))
MEMORY_WORDS: Final = {"state": "optimizer state"}
LEAST_WAIT: Final = 0.0005
"""Share of the time from which a reason to wait is named."""
REASON_WORDS: Final = {"bubble": "pipeline fills and drains", "uneven": "slower or larger parts", "link": "link"}
REASON_COLOURS: Final = dict(zip(part_record.REASONS, PALETTE[4:], strict=False))


def parts(record: part_record.PartRecord) -> None:
    """Draw which layers lie on which worker, what each holds, and why it waits."""
    if not record.workers or not record.layers:
        return
    st.header("Parts of the model")
    html.draw(parts_html(record))
    st.caption(parts_words(record))
    _rest(len(record.workers), MOST_BARS, names.PARTS_JSON)


def parts_words(record: part_record.PartRecord) -> str:
    """A sentence on the split, its memory and its bytes."""
    most, whole = max(worker.memory for worker in record.workers), sum(layer.nbytes for layer in record.layers)
    return (
        f"{record.words}. The parameters have {format_quantity(whole, 'B')}. The worker that needs most memory holds "
        f"{format_quantity(most, 'B')}, and per update all workers together send {format_quantity(record.sent, 'B')}."
    )


def parts_html(record: part_record.PartRecord) -> str:
    """The HTML of a grid: a row for each layer, the largest ones if there are many, a column for each worker; below
    them each worker's memory, and the shares of its time that it waits."""
    workers = record.workers[:MOST_BARS]
    sizes = sorted((layer.nbytes for layer in record.layers), reverse=True)[:MOST_LAYERS]
    layers = [layer for layer in record.layers if layer.nbytes >= sizes[-1]][:MOST_LAYERS]
    rows = [_row("", [f"<span>{worker}</span>" for worker in range(len(workers))])]
    rows += [_row(layer.name, [_part_cell(layer, *each) for each in enumerate(workers)]) for layer in layers]
    if left := len(record.layers) - len(layers):
        rows.append(_row(f"{left} smaller", ["<i></i>" for _ in workers]))
    most = max(worker.memory for worker in record.workers) or 1.0
    rows.append(_row("memory", [_memory(worker, most) for worker in workers]))
    legend = [(MEMORY_WORDS.get(name, name), colour) for name, colour in MEMORY_COLOURS.items()]
    if reasons := [reason for reason in part_record.REASONS if (record.idle(reason) or 0.0) >= LEAST_WAIT]:
        rows.append(_row("waits", [_waits(worker) for worker in workers]))
        legend += [(f"waits: {REASON_WORDS[reason]}", REASON_COLOURS[reason]) for reason in reasons]
    columns = f"grid-template-columns:max-content repeat({len(workers)},minmax(1.9rem,5rem))"
    region = f'<div class="sb-parts" tabindex="0" role="region" aria-label="parts" style="{columns}">'
    return f"{charts.legend(legend)}{region}{''.join(rows)}</div>"


def _row(name: str, cells: Sequence[str]) -> str:
    return f"<em>{escape(name)}</em>{''.join(cells)}"


def _part_cell(layer: part_record.PlacedLayer, worker: int, part: part_record.WorkerPart) -> str:
    """A worker's part of a layer; empty where it has none."""
    if layer.stage is not None and layer.stage != part.stage:
        return "<i></i>"
    words = f"worker {worker}: {format_quantity(layer.nbytes / layer.parts, 'B')} of {layer.name}"
    share = f"1/{layer.parts}" if layer.parts > 1 else ""
    return f'<i class="sb-part" title="{escape(words)}">{share}</i>'


def _memory(part: part_record.WorkerPart, most: float) -> str:
    pieces = [
        (
            f"{MEMORY_WORDS.get(name, name)} {format_quantity(getattr(part, name), 'B')}",
            getattr(part, name) / most,
            colour,
        )
        for name, colour in MEMORY_COLOURS.items()
    ]
    return _stack(pieces, format_quantity(part.memory, "B"))


def _waits(part: part_record.WorkerPart) -> str:
    shares = {reason: getattr(part, reason) or 0.0 for reason in part_record.REASONS}
    pieces = [(f"{REASON_WORDS[name]} {share:.1%}", share, REASON_COLOURS[name]) for name, share in shares.items()]
    return _stack(pieces, f"{sum(shares.values()):.0%}")


def _stack(pieces: Sequence[tuple[str, float, str]], label: str) -> str:
    """A column of pieces (words, share of the height, colour)."""
    drawn = "".join(
        f'<i style="height:{share:.2%};background:{colour}" title="{escape(words)}"></i>'
        for words, share, colour in pieces
        if share > 0
    )
    return f"<div><div>{drawn}</div><b>{label}</b></div>"


USAGE_HEIGHT = 240
BY_WORKER: Final = {"GPU utilization by worker, %": ("busy", 100.0), "GPU memory by worker, MB": ("memory_mb", 1.0)}
"""By title: the field of the sample, and the factor of the unit."""


def usage_over_time(samples: Sequence[Usage]) -> None:
    """Draw CPU and memory over time, and the GPUs'; nothing before the first sample."""
    if not samples:
        return
    st.header("CPU and memory")
    seconds = [sample.seconds for sample in samples]
    memory = [sample.memory_mb for sample in samples]
    panels = [
        ("CPU cores busy", [Series("CPU cores", seconds, [sample.cores for sample in samples], charts.PALETTE[0])]),
        ("memory of all processes, MB", [Series("memory", seconds, memory, charts.PALETTE[0])]),
    ]
    uuids = list(dict.fromkeys(gpu.uuid for sample in samples for gpu in sample.gpus))
    for title, field, times in (("GPU busy, %", "busy", 100.0), ("GPU memory, MB", "memory_mb", 1.0),
                                ("GPU temperature, °C", "temperature_c", 1.0)):  # fmt: skip
        lines = [_gpu_line(samples, uuid, i, field, times) for i, uuid in enumerate(uuids)]
        with_values = [line for line in lines if line.x]  # not every GPU tells everything
        panels += [(title, with_values)] if with_values else []
    by_worker = _usage_by_worker(samples)
    panels += by_worker
    columns = st.columns(2, gap="medium")
    for i, (title, lines) in enumerate(panels):
        drawn = charts.lines(lines, x_title="seconds", title=title, dark=style.dark(), height=USAGE_HEIGHT)
        drawn.update_yaxes(rangemode="tozero")
        with columns[i % 2]:
            charts.draw(drawn, f"usage-{title}", f"{title} against seconds")
    if uuids and len(by_worker) < len(BY_WORKER):
        unknown = [title for title in BY_WORKER if not any(drawn.startswith(title) for drawn, _ in by_worker)]
        st.caption(
            f"Unknown: {'; '.join(unknown)}. NVML does not report these values here, as in most containers and MIG "
            "instances."
        )


def _usage_by_worker(samples: Sequence[Usage]) -> list[tuple[str, list[Series]]]:
    """Charts with a line for each worker on each of its GPUs; none for a figure that NVML never reports."""
    numbers = {uuid: i for i, uuid in enumerate(dict.fromkeys(gpu.uuid for one in samples for gpu in one.gpus))}
    keys = sorted({(one.process, one.uuid) for sample in samples for one in sample.workers}, key=_in_order)
    panels = []
    for title, (field, times) in BY_WORKER.items():
        lines = list[Series]()
        for process, uuid in keys[: len(charts.PALETTE)]:
            points = [
                (sample.seconds, times * value)
                for sample in samples
                for one in sample.workers
                if (one.process, one.uuid) == (process, uuid) and (value := getattr(one, field)) is not None
            ]
            name = f"{process or 'the run'}, GPU {numbers.get(uuid, '?')}"
            lines.append(Series(name, [x for x, _ in points], [y for _, y in points], charts.PALETTE[len(lines)]))
        if told_lines := [line for line in lines if line.x]:
            more = f" (the first {len(lines)} of {len(keys)})" if len(keys) > len(lines) else ""
            panels.append((f"{title}{more}", told_lines))
    return panels


def _in_order(key: tuple[str, str]) -> tuple[int, str]:
    process, uuid = key
    return (int(process.rpartition(" ")[2] or 0) if process else -1), uuid


def _gpu_line(samples: Sequence[Usage], uuid: str, index: int, field: str, times: float) -> Series:
    points = [
        (sample.seconds, times * value)
        for sample in samples
        for gpu in sample.gpus
        if gpu.uuid == uuid and (value := getattr(gpu, field)) is not None
    ]
    colour = charts.PALETTE[index % len(charts.PALETTE)]
    return Series(f"GPU {index}", [x for x, _ in points], [y for _, y in points], colour)
