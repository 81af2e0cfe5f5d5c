"""The parts of the pages of searches: the card of a search cell, the head of a search, its best trial, the table."""

import hashlib
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final, Literal

import pandas as pd
import streamlit as st

from scalebook.app.search import trial_data, trial_style
from scalebook.app.search.data import BestTrial, SearchView, budget_words, scaling_words, space_words
from scalebook.app.search.trial_data import TrialRow
from scalebook.app.shared import html, style
from scalebook.app.shared.widgets import CellIntent, cell_menu, number_box, press_button, show_problems
from scalebook.app.shared.words import ago, plural, sentence
from scalebook.training.base import Problem, duration
from scalebook.training.experiments import Field, check_value, quoted_value
from scalebook.training.experiments.search import Dimension, SearchSpec
from scalebook.training.search import SearchProgress
from scalebook.training.search.study import TrialRecord
from scalebook.training.tracking import own_metrics

CardIntent = Literal["run", "stop", "resume", "open", "edit"] | CellIntent


def search_card(
    name: str,
    body: Mapping[str, Any],
    search: SearchView | None,
    stale: str,
    best: BestTrial | None,
    problems: Sequence[Problem],
    page: str,
) -> CardIntent | None:
    """Draw the card of a search cell: its line, progress, best trial so far, buttons; returns the clicked one.

    `search` is the cell's newest search, None before the first; `stale` says what has changed since, "" if nothing has.

    `page` identifies this state of the notebook.
    """
    intent = _head(name, search, stale, any(problem.severity == "error" for problem in problems), page)
    html.draw(summary(body, f"of {body['experiment']}" if body.get("experiment") else ""))
    show_problems(problems)
    if search is not None:
        if search.live:
            progress(search)
        trouble_words(search)
        if best is not None:
            html.draw(best_line(search, best))
    return intent


def _head(name: str, search: SearchView | None, stale: str, blocked: bool, page: str) -> CardIntent | None:
    chips = html.chip(search.colour, search.standing) if search else html.chip("new", "not run yet")
    if stale:
        chips += " " + html.chip("stale", f"stale: {stale}")
    title, buttons = st.columns([3, 2], vertical_alignment="center")
    with title:
        html.draw(html.name(name, chips))
    with buttons, st.container(horizontal=True, horizontal_alignment="right", gap="small"):
        intent = _main_button(name, search, stale, blocked, f"{page} {search.id} {search.state}" if search else page)
        if search and press_button("Open", f"open-{name}", icon=":material/open_in_full:"):
            intent = "open"
        if press_button("Edit", f"edit-{name}", type="tertiary"):
            intent = "edit"
        return cell_menu(name) or intent


def _main_button(name: str, search: SearchView | None, stale: str, blocked: bool, now: str) -> CardIntent | None:
    """Draw Stop for an active search, Resume for one that ended early, else Run."""
    if search is not None and search.live:
        stopping = search.state == "stopping"
        return "stop" if press_button("Stop", f"stop-{name}", now, icon=":material/stop:", disabled=stopping) else None
    if search is not None and search.state in ("interrupted", "stopped", "failed") and not stale:
        return "resume" if press_button("Resume", f"resume-{name}", now, icon=":material/resume:") else None
    done = search is not None and search.complete and not stale
    pressed = press_button(
        "Run",
        f"run-{name}",
        now,
        icon=":material/play_arrow:",
        disabled=blocked or done,
        help="All trials are done. Open the search to add more, or edit it." if done else None,
    )
    return "run" if pressed else None


def summary(body: Mapping[str, Any], what: str) -> str:
    """The HTML of one line: the space, `what` is searched, what a batch size means, the budget."""
    parts = [what, scaling_words(body), *budget_words(body)]
    pieces = [f"<b>{escape(space_words(body))}</b>", *(escape(part) for part in parts if part)]
    return f'<div class="sb-summary">{" · ".join(pieces)}</div>'


def progress(search: SearchView) -> None:
    """Draw the bar of an active search: `12 of 30 trials · 2 running · about 40 s left`."""
    st.progress(search.fraction, text=standing(search))


def standing(search: SearchView) -> str:
    if search.state == "waiting":
        return "waiting for the supervisor to start it"
    if search.state == "stopping":
        return "stopping: running trials end now, and are run again when you press Resume"
    if search.progress is None:
        return "starting"
    state = search.progress
    parts = [f"{state.done:,} of {search.trials:,} trials"]
    if state.running:
        parts.append(f"{state.running} running")
    if state.left_s is not None:
        parts.append(f"about {duration(state.left_s)} left")
    if state.note:
        parts.append(state.note)
    return " · ".join(parts)


def trouble_words(search: SearchView) -> None:
    """Draw why the search ended early, or how many of its trials failed."""
    if search.state == "interrupted":
        st.warning(search.trouble, icon=":material/link_off:")
    elif search.state == "failed":
        st.error(f"**The search failed.** {sentence(search.trouble)}", icon=":material/error:")
    elif search.state == "finished" and search.result is not None and search.result.failed:
        st.warning(sentence(search.result.cause), icon=":material/warning:")
    elif search.state == "stopped":
        st.info(f"{sentence(search.trouble or 'This search was stopped')} Resume continues where it stopped.")


def best_line(search: SearchView, best: BestTrial) -> str:
    """`best val/loss 0.1293 at batch 128, rate 0.08, after 60 of 60 trials`"""
    after = f"after {search.done:,} of {plural(search.trials, 'trial')}"
    value = html.marked(best.value) if best.is_own else escape(best.value)
    return (
        f'<div class="sb-best"><span>best {escape(search.objective)}</span><b>{value}</b>'
        f"<span>at</span><b>{escape(best.point)}</b><span>{escape(after)}</span></div>"
    )


Intent = Literal["stop", "resume", "add trials", "add point"]
Given = int | dict[str, Any] | None
"""The number of trials, or the point."""
KEYS: Final[dict[Intent, str]] = {
    "stop": "search-stop",
    "resume": "search-resume",
    "add trials": "add-trials",
    "add point": "add-point",
}
ENDED_EARLY: Final = ("interrupted", "stopped", "failed")
NUMBERS: Final = ("int", "uniform", "log_uniform")
"""Kinds of dimensions that are a range between two ends."""
MORE_TRIALS: Final = 20
trouble = trouble_words


def title(search: SearchView) -> None:
    """Draw name and state of a search."""
    html.draw(html.name(search.name, html.chip(search.colour, search.standing), page=True))


def line(search: SearchView, experiment: str) -> None:
    """Draw one line: what is searched, of which experiment, since when."""
    began = f"{experiment} · " if experiment else ""
    html.draw(summary(search.body, f"{began}started {ago(search.request.created)}"))


def buttons(
    search: SearchView, mlflow_url: str | None, spec: SearchSpec | None, start: Mapping[str, Any], version: int
) -> tuple[Intent | None, Given]:
    """Draw the buttons that the search's state allows, and two small forms: more trials, and a point by hand; returns
    the clicked button and the form's value.

    `spec` is None if it cannot be read; `start` is the first value of the point.

    A new `version` makes new, closed forms.
    """
    with st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="center"):
        intent: Intent | None = None
        value: Given = None
        now = f"{search.id}.{version}.{search.state}"
        if search.live and press_button(
            "Stop", KEYS["stop"], now, icon=":material/stop:", disabled=search.state == "stopping"
        ):
            intent = "stop"
        if search.state in ENDED_EARLY and press_button("Resume", KEYS["resume"], now, icon=":material/resume:"):
            intent = "resume"
        if spec is not None:
            with st.popover("Add trials", icon=":material/add:", key=f"trials-{version}"):
                more = number_box("More trials", MORE_TRIALS, f"more-trials-{version}", whole=True)
                wrong = check_value("trials", more, Field("trials", "int", required=True, minimum=1))
                if _given("Add", KEYS["add trials"], now, [wrong] if wrong else []) and isinstance(more, int):
                    intent, value = "add trials", more
            with st.popover("Add a point", icon=":material/add_location:", key=f"point-{version}"):
                point, refused = _point(spec, start, f"point-{version}")
                if _given("Try next", KEYS["add point"], now, refused):
                    intent, value = "add point", point
        if mlflow_url:
            st.link_button("Trials in MLflow", mlflow_url, icon=":material/open_in_new:")
    return intent, value


def _given(label: str, key: str, now: str, wrong: Sequence[Problem]) -> bool:
    """Draw the problems of a small form and its button, which they disable; returns a valid click."""
    for problem in wrong:
        st.error(str(problem))
    return press_button(label, key, now, type="primary", disabled=bool(wrong)) and not wrong


def _point(spec: SearchSpec, start: Mapping[str, Any], key: str) -> tuple[dict[str, Any], list[Problem]]:
    """Draw a field for each dimension, starting from the best point so far; returns the point and its problems."""
    point = {
        dimension.name: _value(dimension, start.get(dimension.name), f"{key}-{dimension.name}")
        for dimension in spec.space
    }
    wrong = [dimension for dimension in spec.space if not dimension.contains(point[dimension.name])]
    return point, [
        Problem(
            "unknown-value",
            dimension.name,
            f"is {quoted_value(point[dimension.name])}",
            f"Allowed: {dimension.words()}.",
        )
        for dimension in wrong
    ]


def _value(dimension: Dimension, start: Any, key: str) -> Any:
    hint = f"Allowed: {dimension.words()}."
    if dimension.kind not in NUMBERS:
        values = dimension.grid()
        index = values.index(start) if start in values else 0
        return st.selectbox(dimension.name, values, index, format_func=dimension.label, key=key, help=hint)
    if dimension.kind == "int":
        return number_box(dimension.name, int(dimension.low if start is None else start), key, whole=True, hint=hint)
    middle = (
        (dimension.low * dimension.high) ** 0.5
        if dimension.kind == "log_uniform"
        else (dimension.low + dimension.high) / 2
    )
    value = float(f"{middle if start is None else start:.3g}")
    value = min(max(value, float(dimension.low)), float(dimension.high))
    return number_box(dimension.name, value, key, hint=hint)


TrialIntent = tuple[str, int | str]
"""("use", number of a trial) or ("open", id of a run)."""
COUNT_CHIPS = {"infeasible": "out of memory"}  # which look a state's chip has, where it is not its own


def chips(records: Sequence[TrialRecord]) -> str:
    """A chip with the number of trials for each state; for infeasible trials also why."""
    chips_ = []
    for state, count in trial_data.counts(records).items():
        if count or state == "finished":
            light, dark = trial_style.LOOKS[COUNT_CHIPS.get(state, state)].colours
            live = " sb-running" if state == "running" else ""
            causes = trial_data.infeasible_words(records) if state == "infeasible" else ""
            chips_.append(
                f'<span class="sb-chip{live}" style="--c: light-dark({light}, {dark})" title="{escape(causes)}">'
                f"{count:,} {escape(state)}{escape(f': {causes}' if causes else '')}</span>"
            )
    return f'<div style="display:flex;flex-wrap:wrap;gap:.45rem">{"".join(chips_)}</div>'


def best_trial(
    records: Sequence[TrialRecord], spec: SearchSpec, progress: SearchProgress | None, live: bool
) -> TrialIntent | None:
    """Draw the top of a search: progress bar, chips, the best trial so far and its buttons; returns the clicked one."""
    if live:
        share, words = trial_data.standing(progress, records, spec)
        st.progress(min(share, 1.0), text=words)
    best = trial_data.best(records, spec)
    intent = None
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        html.draw(chips(records))
        if best is not None:
            with st.container(horizontal=True, width="content", horizontal_alignment="right"):
                intent = trial_buttons(best, "best", primary=True)
    if best is not None:
        html.draw(_best(best, spec))
    return intent


def _best(best: TrialRecord, spec: SearchSpec) -> str:
    """The best trial's figures in a row; its point gets the remaining width."""
    pairs = [
        (f"{'' if i else 'best '}{objective.name}", trial_data.reached(best, spec, i), "1 1 auto")
        for i, objective in enumerate(spec.objectives)
    ]
    pairs += [("at", trial_data.words(best, spec), "999 1 16rem"), ("trial", str(best.number), "1 1 auto")]
    cells = "".join(
        f'<div style="flex:{flex}"><span>{escape(name)}</span><b>{escape(value)}</b></div>'
        for name, value, flex in pairs
    )
    return f'<div class="sb-facts">{cells}</div>'


def trial_buttons(record: TrialRecord, key: str, *, primary: bool) -> TrialIntent | None:
    """Draw **Use this configuration** and **Open run**, which is a menu with several seeds."""
    intent: TrialIntent | None = None
    if st.button(
        "Use this configuration",
        key=f"{key}-use",
        type="primary" if primary else "secondary",
        icon=":material/input:",
        help="Adds this point to the notebook as an experiment.",
    ):
        intent = ("use", record.number)
    if len(record.runs) == 1:
        if st.button("Open run", key=f"{key}-open"):
            intent = ("open", next(iter(record.runs.values())))
    elif record.runs:
        names = {f"seed {seed}": run_id for seed, run_id in sorted(record.runs.items())}
        if chosen := st.menu_button("Open run", list(names), key=f"{key}-open"):
            intent = ("open", names[chosen])
    return intent


def notes(records: Sequence[TrialRecord], spec: SearchSpec, progress: SearchProgress | None) -> None:
    """Draw the sentences that explain the figures, as one paragraph."""
    if sentences := [*trial_data.notes(spec, progress), trial_data.resolution(records, spec)]:
        st.caption(" ".join(sentence(text) for text in sentences if text))


READING = "Click a column's head to sort; tick a trial to select it."
HEIGHT = 470
CHIPS = {  # of a state, on the light and on the dark ground: those of the table of runs, and three of the search's own
    "finished": ("#cbe7d5", "#1f5135"),
    "pruned": ("#ddd3f0", "#463474"),
    "infeasible": ("#f6dcbc", "#6b3f10"),
    "failed": ("#f6cfc9", "#6d2b24"),
    "running": ("#bfe3e5", "#155258"),
    "waiting": ("#f3e3b8", "#5a4716"),
}
APPLIED = "rate applied"
ORDERS = ("by number", "best first")


def trial_table(
    records: Sequence[TrialRecord],
    rows: Sequence[TrialRow],
    spec: SearchSpec,
    order: str,
    key: str,
    factors: Mapping[int, float],
) -> TrialRecord | None:
    """Draw all trials in rows; returns the ticked one. `factors`: what scaled each trial's learning rate, by number."""
    if order == ORDERS[1]:
        lower = spec.objectives[0].lower
        rows = sorted(
            rows, key=lambda row: (row.values[0] is None, (row.values[0] or 0.0) * (1 if lower else -1), row.number)
        )
        key += "-" + hashlib.sha256(str([row.number for row in rows]).encode()).hexdigest()[:8]
    event: Any = st.dataframe(
        pd.DataFrame([_cells(row, spec, factors) for row in rows]),
        key=key,
        hide_index=True,
        height=HEIGHT,
        placeholder="–",
        on_select="rerun",
        selection_mode="single-row",
        column_config=_columns(spec),
        column_order=[
            name
            for name in _columns(spec)
            if name not in ("why", "own") or any((row.why if name == "why" else row.own) for row in rows)
        ],
        alt="all trials",
    )
    ticked = [rows[i].number for i in event.selection.rows if i < len(rows)]
    return next((record for record in records if record.number in ticked), None)


def _cells(row: TrialRow, spec: SearchSpec, factors: Mapping[int, float]) -> dict[str, Any]:
    point = {
        f"point.{dimension.name}": _sortable(row.raw.get(dimension.name), row.point[dimension.name])
        for dimension in spec.space
    }
    values = {f"value.{i}": value for i, value in enumerate(row.values)}
    rate, factor = row.raw.get("learning_rate"), factors.get(row.number)
    if trial_data.per_batch(spec) is not None:
        point[APPLIED] = rate * factor if isinstance(rate, int | float) and factor is not None else None
    return {
        "number": row.number, "state": [row.state], **point, **values, "spread": row.spread, "seconds": row.seconds,
        "why": row.why, "own": row.own,
    }  # fmt: skip


def _sortable(raw: Any, label: str) -> Any:
    """The raw value if it is a number, so that its column sorts by size; else its label."""
    return raw if isinstance(raw, int | float) and not isinstance(raw, bool) else label


def _columns(spec: SearchSpec) -> dict[str, Any]:
    column = st.column_config
    colours = [pair[style.dark()] for pair in CHIPS.values()]
    columns: dict[str, Any] = {
        "number": column.NumberColumn("Trial", width=64),
        "state": column.MultiselectColumn("State", options=list(CHIPS), color=colours, width=96),
    }
    per = trial_data.per_batch(spec)
    for dimension in spec.space:
        if dimension.name == "learning_rate" and per is not None:
            columns[APPLIED] = column.NumberColumn(
                "learning rate", format="%.4g", width=108, help="The learning rate as applied at this batch size."
            )
            columns[f"point.{dimension.name}"] = column.NumberColumn(
                spec.called(dimension.name), format="%.4g", width=220
            )
            continue
        name = dimension.name.rsplit(".", 1)[-1].replace("_", " ")
        if dimension.ordered:
            whole = dimension.kind in ("int", "powers_of_two")
            columns[f"point.{dimension.name}"] = column.NumberColumn(name, format="%d" if whole else "%.4g", width=108)
        else:
            numbers = all(isinstance(each, int | float) for each in dimension.choices)
            columns[f"point.{dimension.name}"] = (column.NumberColumn if numbers else column.TextColumn)(
                name, width=108
            )
    for i, objective in enumerate(spec.objectives):
        columns[f"value.{i}"] = column.NumberColumn(objective.name, format="%.5g", width=108)
    columns["own"] = column.TextColumn(f"{own_metrics.SIGN} Per worker", width="small", help=own_metrics.WORDS)
    if spec.seeds > 1:
        columns["spread"] = column.NumberColumn(
            "±", format="%.2g", width=70, help="Half the width of the 95 % interval over the seeds."
        )
    columns["seconds"] = column.NumberColumn(
        trial_data.amount(spec, "seconds").capitalize(),
        format="%.1f",
        width=80,
        help="Mean training time over the seeds.",
    )
    columns["why"] = column.TextColumn(
        "Why", width=380, help="Why the trial was pruned, failed or could not run, and which workers it lost."
    )
    return columns
