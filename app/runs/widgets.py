"""The parts of the list of runs other than its table: filters, progress of a run, devices."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import streamlit as st

from scalebook.app.navigation import RUNS
from scalebook.app.runs import run_query
from scalebook.app.runs.data import DeviceHolder, DeviceState, NodeState, RunView
from scalebook.app.runs.run_query import FACETS, PARAMETER, RunQuery, ValueRange
from scalebook.app.shared import html
from scalebook.app.shared.widgets import number_box, number_text
from scalebook.app.shared.words import figure
from scalebook.training.base import duration
from scalebook.training.tracking import RunRecord, names


def progress_bar(view: RunView, prefix: str = "") -> None:
    """Draw the bar of a run that has not ended, with `prefix` before its text; nothing for an ended run."""
    if not view.ended:
        st.progress(fraction(view), text=prefix + progress_words(view))


def fraction(view: RunView) -> float:
    """The used share of the run's budget, 0 to 1; 0 without a limit or before the start."""
    share = view.progress.fraction if view.progress else None
    return min(max(share or 0.0, 0.0), 1.0)


def progress_words(view: RunView) -> str:
    """`training, 42 %, 12 s left · epoch 3 · 1,240 updates · 65 updates/s`; of a waiting run, why it waits."""
    progress = view.progress
    if view.state == "waiting":
        return view.reason or "waiting for the supervisor to start it"
    if view.state == "stopping":
        return "stopping: the run ends after this update, or is killed after a few seconds"
    if progress is None:
        return " · ".join(["starting", *([view.reason] if view.reason else [])])
    parts: list[str] = [progress.phase]
    if progress.fraction is not None:
        parts[0] += f", {progress.fraction:.0%}"
    if progress.left_s is not None:
        parts[0] += f", {duration(progress.left_s)} left"
    if progress.updates:
        parts.append(f"epoch {progress.epoch_under_way}")
        parts.append(f"{progress.updates:,} updates")
        if (rate := view.metrics.get(names.UPDATES_PER_SECOND)) is not None:
            parts.append(f"{figure(rate, 3)} updates/{'virtual ' if view.is_simulated else ''}s")
    return " · ".join([*parts, *([view.reason] if view.reason else [])])


FULL_C = 85.0
"""From this temperature on a GPU is marked as hot."""


def devices(state: DeviceState) -> None:
    """Draw a row for each run that holds devices and one for the free ones; then a row for each GPU."""
    rows = [[_who(holder), html.text(_numbers(holder.cores)), html.text(_gpus(holder))] for holder in state.held]
    rows.append([html.text("free", "dim"), html.text(_numbers(state.free_cores) or "–"),
                 html.text(_numbers(state.free_gpus) or "–")])  # fmt: skip
    html.draw(html.table(["Held by", "Cores", *(["GPUs"] if state.gpus else [])],
                         rows if state.gpus else [row[:2] for row in rows]))  # fmt: skip
    if state.elsewhere:
        html.draw(html.table(["Node", "Held by", "Cores", "GPUs"], _elsewhere_rows(state.elsewhere)))
    st.caption(f"Memory: {figure(state.memory_used_mb / 1000, 3)} of {figure(state.memory_mb / 1000, 3)} GB in use.")
    if state.about_gpus:
        st.caption(state.about_gpus)
    if state.gpus:
        gpu_rows = [
            [
                html.text(f"{gpu.index} · {gpu.name}"),
                html.number(f"{gpu.busy:.0%}" if gpu.busy is not None else ""),
                html.number(f"{_gb(gpu.used_mb)} of {_gb(gpu.memory_mb)}"),
                html.number("" if gpu.temperature_c is None else f"{gpu.temperature_c:.0f}"
                            + (" (hot)" if gpu.temperature_c >= FULL_C else "")),
            ]
            for gpu in state.gpus
        ]  # fmt: skip
        html.draw(html.table(["GPU", "busy", "memory, GB", "temperature, °C"], gpu_rows, numeric=range(1, 4)))


def _elsewhere_rows(nodes: Sequence[NodeState]) -> list[list[html.Cell]]:
    """The rows of the cluster's nodes: one for each run there, and one for the free devices."""
    rows = []
    for node in nodes:
        name = html.text(node.name)
        rows += [
            [name, _who(holder), html.text(_numbers(holder.cores)), html.text(_numbers(holder.gpus) or "–")]
            for holder in node.held
        ]
        if node.words:
            rows.append([name, html.text(node.words, "dim"), html.text("–"), html.text("–")])
        else:
            free = [html.text(_numbers(numbers) or "–") for numbers in (node.free_cores, node.free_gpus)]
            rows.append([name, html.text("free", "dim"), *free])
    return rows


def _who(holder: DeviceHolder) -> html.Cell:
    return html.link(holder.name, RUNS.url(run=holder.run_id))


def _gpus(holder: DeviceHolder) -> str:
    """The GPUs of a run: `1 (25 %)` if it uses a share of GPU 1."""
    share = f" ({holder.share:.0%})" if holder.share < 1 else ""
    return f"{_numbers(holder.gpus)}{share}" if holder.gpus else "–"


def _gb(memory_mb: float | None) -> str:
    """GB; "–" if a GPU does not report it, or has no memory of its own."""
    return f"{memory_mb / 1024:.1f}" if memory_mb is not None else "–"


def _numbers(numbers: Sequence[int]) -> str:
    return ", ".join(str(number) for number in numbers)


ANY: Final = "any state"
NO_GROUP: Final = "none"
LABELS: Final = {
    "notebook": "Notebook", "model": "Model", "strategy": "Strategy", "batch": "Batch per worker",
    "rate": "Learning rate",
}  # fmt: skip
LISTS: Final = (*LABELS, "tag", "by", "columns")
KEYS: Final = ("find", "state", *LISTS, "trials", "tests", "group", "sort", "down")
FROM: Final = "from "
TO: Final = "to "
IS: Final = "is "
"""Prefixes of the query parameters about one metric or parameter; its name follows."""


@dataclass(frozen=True)
class ListView:
    """Which runs the list shows, and how."""

    query: RunQuery
    group: str
    """A facet, "" for single runs."""
    columns: Sequence[str]
    """Metrics and parameters (`params.lr`) that have a column each."""

    def filter_words(self) -> str:
        """The filters in words; "" without filters."""
        query = self.query
        chosen = {**query.facets, "tag": query.tags, "name": [query.find] if query.find else [], **query.values}
        words = [f"{facet} {' or '.join(values)}" for facet, values in chosen.items() if values]
        return ", ".join([*words, *(f"{name} {range_.words}" for name, range_ in query.ranges.items() if range_)])

    def named(self) -> list[str]:
        """The metrics and parameters that the list needs."""
        return list(dict.fromkeys([*self.columns, *self.query.ranges, *self.query.values, self.query.sort]))

    def address(self) -> dict[str, list[str]]:
        """The query parameters of this list, without defaults."""
        query = self.query
        state = [ANY, *query.facets.get("state", [])][-1]
        parameters: dict[str, list[str]] = {
            "find": [query.find],
            "state": [state] if state != ANY else [],
            **{facet: list(query.facets.get(facet, [])) for facet in LABELS},
            "tag": list(query.tags),
            "trials": ["true"] if query.trials else [],
            "tests": ["true"] if query.tests else [],
            "by": [*query.ranges, *query.values],
            **{f"{FROM}{name}": _end(range_.low) for name, range_ in query.ranges.items()},
            **{f"{TO}{name}": _end(range_.high) for name, range_ in query.ranges.items()},
            **{f"{IS}{name}": list(values) for name, values in query.values.items()},
            "columns": list(self.columns),
            "group": [self.group] if self.group else [],
            "sort": [query.sort] if query.sort != "started" else [],
            "down": [] if query.down else ["false"],
        }
        return {key: values for key, values in parameters.items() if any(values)}


def _end(value: float | None) -> list[str]:
    return [] if value is None else [number_text(value)]


def known_keys(address: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """The query parameters that belong to this list; an address may have any others."""
    ways = (FROM, TO, IS)
    return {key: values for key, values in address.items() if key in KEYS or key.startswith(ways)}


def filters(
    records: Sequence[RunRecord],
    states: Sequence[str],
    address: Mapping[str, Sequence[str]],
    parameters: Sequence[str],
    values: Callable[[str], Mapping[str, str]],
) -> ListView:
    """Draw the widgets that choose runs, order and columns; the address holds their values.

    `address` holds the query parameters, which may name values that no run has any more. `parameters`: the names of
    all parameters; `values` returns the values of one of them, by run.
    """
    metrics = run_query.metrics(records)
    names = [*metrics, *(f"{PARAMETER}{name}" for name in parameters)]
    find = st.text_input("Find", key="find", placeholder="Name, note or tag", bind="query-params", width=230,
                         label_visibility="collapsed", icon=":material/search:")  # fmt: skip
    state = st.selectbox(
        "State", [ANY, *states], key="state", bind="query-params", label_visibility="collapsed", width=140
    )
    with st.popover("Filter", icon=":material/filter_alt:"):
        offered = {facet: run_query.options(records, facet) for facet in LABELS}
        offered["tag"] = sorted({tag for record in records for tag in run_query.tags(record)})
        facets = {}
        for place, (facet, label) in zip(st.columns(2) * 3, {**LABELS, "tag": "Tags"}.items(), strict=True):
            with place:
                facets[facet] = _several(label, facet, offered[facet], address)
        tags = facets.pop("tag")
        by = _several("Metric or parameter", "by", names, address, "Metrics are filtered by their last value.")
        ranges, chosen = _of_each(by, address, values)
        trials = st.toggle("Show trials of searches", key="trials", bind="query-params")
        tests = st.toggle("Show measurements and tests", key="tests", bind="query-params",
                          help="Also shows runs that were made by Plan, learning-rate tests and largest-batch "
                               "tests.")  # fmt: skip
    with st.popover("Columns", icon=":material/view_column:"):
        columns = _several("Metrics and parameters", "columns", names, address)
        group = st.selectbox("Group by", [NO_GROUP, *FACETS], key="group", bind="query-params")
        orders = list(dict.fromkeys([*run_query.ORDERS, *names, *address.get("sort", ())]))
        sort = st.selectbox(
            "Sort by", orders, key="sort", bind="query-params", help="Metrics are sorted by their last value."
        )
        down = st.toggle("Largest or newest first", value=True, key="down", bind="query-params")
    if state and state != ANY:
        facets["state"] = [state]
    query = RunQuery(find or "", facets, tags, trials, sort or "started", down, tests, ranges, chosen)
    return ListView(query, "" if group in (None, NO_GROUP) else str(group), columns)


def _of_each(
    names: Sequence[str], address: Mapping[str, Sequence[str]], values: Callable[[str], Mapping[str, str]]
) -> tuple[dict[str, ValueRange], dict[str, Sequence[str]]]:
    """Draw the filter of each metric or parameter: two ends of a range, or the values of a parameter that is not
    numeric."""
    ranges: dict[str, ValueRange] = {}
    chosen: dict[str, Sequence[str]] = {}
    for name in names:
        parameter = name.removeprefix(PARAMETER)
        words = run_query.choices(values(parameter)) if name.startswith(PARAMETER) else None
        if words is not None:
            chosen[name] = _several(parameter, f"{IS}{name}", words, address)
            continue
        with st.container(horizontal=True, vertical_alignment="bottom"):
            low = number_box(f"{plain_label(name)} from", None, f"{FROM}{name}", empty="any", in_address=True)
            high = number_box("to", None, f"{TO}{name}", empty="any", in_address=True)
        for end in (low, high):
            if isinstance(end, str):
                st.error(f"{plain_label(end)} is not a number.")
        ranges[name] = ValueRange(*(None if end is None or isinstance(end, str) else float(end) for end in (low, high)))
    return ranges, chosen


def plain_label(text: str) -> str:
    """The text escaped for a label, which is Markdown."""
    return "".join(f"\\{letter}" if letter in r"\`*_[]()<>:$~#!|" else letter for letter in text)


def _several(
    label: str, key: str, offered: Sequence[str], address: Mapping[str, Sequence[str]], words: str | None = None
) -> list[str]:
    values = list(dict.fromkeys([*offered, *address.get(key, ())]))
    placeholder = "none" if key == "columns" else "any"
    return st.multiselect(plain_label(label), values, key=key, bind="query-params", placeholder=placeholder, help=words)
