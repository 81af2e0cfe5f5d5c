"""The parts of comparisons and claims on a page: charts, tables, results and forms."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any, Literal

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from scalebook.app import state
from scalebook.app.compare import data
from scalebook.app.compare.data import FIELDS, FIGURES, ClaimPlan, ComparisonPlan, MoreSeeds
from scalebook.app.navigation import COMPARE, RUNS
from scalebook.app.shared import charts, html, style
from scalebook.app.shared.charts import Series
from scalebook.app.shared.widgets import choose_better, number_box, press_button
from scalebook.app.shared.words import figure, interval, plain, plural
from scalebook.training.base import ConfigError, Problem, roughly
from scalebook.training.experiments import strategy_words
from scalebook.training.notebook import (
    AXES,
    Axis,
    Comparison,
    ComparisonCell,
    ExperimentRow,
    axes_with_data,
    claim_body,
    relative,
    sentences,
)
from scalebook.training.notebook import HELP as OF_CELLS
from scalebook.training.notebook.claims import Judgement, claim_table
from scalebook.training.tracking import Estimate, Goal, Reached, directions, mean_curve, names, own_metrics


def colours(comparison: Comparison) -> dict[str, str]:
    """The colour of each row, by experiment."""
    return {row.experiment: charts.PALETTE[i % len(charts.PALETTE)] for i, row in enumerate(comparison.rows)}


def comparison_curves(
    comparison: Comparison, axis: Axis, log_y: bool, key: str, height: int = 400, smoothing: float = 0.0
) -> None:
    """Draw one line for each row: with several seeds their mean in its band, and each seed faint behind it."""
    lines: list[Series] = []
    by_run = {curve.run_id: curve for curve in comparison.curves}
    for name, colour in colours(comparison).items():
        row = next(row for row in comparison.rows if row.experiment == name)
        curves = [by_run[run] for run in row.run_ids if run in by_run and by_run[run].values]
        mean = mean_curve(curves, axis)
        lines += [Series(name, *curve.on(axis), colour, faint=mean is not None) for curve in curves]
        if mean is not None:
            lines.append(Series(name, mean.x, mean.mean, colour, low=mean.low, high=mean.high))
    if not lines:
        html.empty("Nothing to draw yet", f"None of these runs has logged {comparison.metric} yet.")
        return
    simulated = [row.is_simulated for row in comparison.rows]
    drawn = charts.lines(
        lines,
        x_title=names.axis_words(axis, simulated),
        y_title=comparison.metric,
        log_y=log_y,
        smoothing=smoothing,
        target=comparison.target,
        dark=style.dark(),
        height=height,
    )
    charts.draw(drawn, key, f"{comparison.metric} against {axis}")


def comparison_table(comparison: Comparison) -> None:
    """Draw the table of values, speed and cost, the best value in bold. Each name links to its runs."""
    head = [
        "Experiment",
        "Strategy",
        "Batch per worker",
        "Learning rate",
        f"best {comparison.metric}",
        _last(comparison),
    ]
    if comparison.target is not None:
        head += [f"{axis} to {comparison.target:g}" for axis in axes_with_data(comparison.rows)]
    multiples = relative.shown(row.relative for row in comparison.rows)
    above = relative.head(row.relative for row in comparison.rows)
    head += [f"{relative.WORDS[figure]} {above}" for figure in multiples]
    stale = any(row.staleness_mean for row in comparison.rows)
    head += ["updates/s", "samples/s", *(["staleness", "staleness p95"] if stale else []), "runs"]
    shades, best = colours(comparison), winner(comparison)
    rows = [_row(row, comparison, shades[row.experiment], row is best, stale, multiples) for row in comparison.rows]
    html.draw(html.table(head, rows, numeric=range(2, len(head))))
    own = f"{own_metrics.SIGN} {own_metrics.WORDS}" if any(row.is_own for row in comparison.rows) else ""
    against = relative.remarks({row.experiment: row.relative for row in comparison.rows if row.run_ids})
    for remark in (
        *against,
        own,
        resolution(comparison),
        names.time_words([row.is_simulated for row in comparison.rows]),
    ):
        if remark:
            st.caption(remark)
    for row in comparison.rows:
        for words in (row.note, row.shared, row.lost):
            if words:
                st.caption(f"**{row.experiment}**: {words}")


def _last(comparison: Comparison) -> str:
    """The column title of the last values."""
    return "latest" if any(row.outcome in ("running", "waiting") for row in comparison.rows) else "final"


def _row(
    row: ExperimentRow, comparison: Comparison, colour: str, best: bool, stale: bool,
    multiples: Sequence[relative.RelativeFigure],
) -> list[html.Cell]:  # fmt: skip
    runs, name = row.run_ids, html.text(row.experiment)
    if runs:
        url = RUNS.url(run=runs[0]) if len(runs) == 1 else COMPARE.url(runs=",".join(runs))
        name = html.link(row.experiment, url)
    cells = [
        html.Cell(
            html.swatch(colour)
            + name.html
            + ("" if row.outcome == "finished" else " " + html.chip(_chip(row.outcome), row.outcome))
            + (" " + html.chip("stale", "lost a worker") if row.lost else "")
        ),
        html.text(strategy_words(row.strategy, row.rule, row.workers, row.is_simulated)),
        html.number("" if row.batch_per_worker is None else str(row.batch_per_worker)),
        html.number("" if row.learning_rate is None else f"{row.learning_rate:g}"),
        html.number(interval_text(row.best), best=best, own=row.is_own),
        html.number(interval_text(row.final), own=row.is_own),
    ]
    if comparison.target is not None:
        cells += [html.number(to_target(row.to_target, axis)) for axis in axes_with_data(comparison.rows)]
    cells += [html.number(row.relative.text(figure).strip("-")) for figure in multiples]
    cells += [html.number(rate(row, row.updates_per_second)), html.number(rate(row, row.samples_per_second))]
    if stale:
        cells.append(html.number(interval_text(row.staleness_mean, 3)))
        cells.append(html.number("" if row.staleness_p95 is None else f"{row.staleness_p95.mean:.0f}"))
    done = len(row.run_ids)
    return [*cells, html.number(f"{done}" if done == row.seeds else f"{done} of {row.seeds}")]


def _chip(outcome: str) -> str:
    return "new" if outcome == "missing" else outcome


def interval_text(value: Estimate | None, digits: int = 4) -> str:
    """`2.103 ± 0.012`."""
    if value is None:
        return ""
    return interval(value.mean, value.half) if digits == 4 else figure(value.mean, digits)


def rate(row: ExperimentRow, value: Estimate | None) -> str:
    """A rate per second: `65.0`, with simulated workers `65.0 virtual`."""
    words = interval_text(value, 3)
    return f"{words} virtual" if words and row.is_simulated else words


def to_target(reached: Mapping[Axis, Reached], axis: Axis) -> str:
    """The mean amount. If some runs missed the target, how many reached it instead: their mean would be too good."""
    share = reached.get(axis)
    if share is None or share.runs == 0:
        return ""
    if share.estimate is None:
        return "missed" if share.reached == 0 else f"{share.reached} of {share.runs} only"
    return figure(share.estimate.mean, 3)


def ranked(comparison: Comparison) -> list[tuple[Estimate, ExperimentRow]]:
    """The rows that have a value, the best mean first."""
    pairs = [(row.best, row) for row in comparison.rows if row.best is not None]
    return sorted(pairs, key=lambda pair: pair[0].mean, reverse=not comparison.lower_is_better)


def winner(comparison: Comparison) -> ExperimentRow | None:
    """The row with the best mean; None with fewer than two to compare."""
    ranking = ranked(comparison)
    return ranking[0][1] if len(ranking) > 1 else None


def resolution(comparison: Comparison) -> str:
    """A sentence if the seeds cannot distinguish the best row from the next, else ""."""
    ranking = ranked(comparison)
    if len(ranking) < 2:
        return ""
    (first, first_row), (second, second_row) = ranking[:2]
    if first.half is None or second.half is None:
        return "With one seed there is no interval, so small differences may be due to chance."
    if abs(first.mean - second.mean) > first.half + second.half:
        return ""
    pair = f"{first_row.experiment} and {second_row.experiment}"
    return f"With these seeds, {pair} cannot be distinguished, because the 95 % intervals overlap."


def why(comparison: Comparison) -> None:
    """Draw a sentence for each row whose figures differ clearly from the others'."""
    for name, sentence in sentences(comparison.rows):
        st.caption(f"**{name}**: {sentence}")


def measured(rows: Sequence[ExperimentRow]) -> None:
    """Draw where the time went, one bar for each row; below, all measured figures, one column for each row."""
    measured_rows = [row for row in rows if row.measured]
    if not measured_rows:
        return
    splits = [(row.experiment, row.shares) for row in measured_rows if row.shares]
    if splits:
        st.header("Where the time went")
        html.draw(charts.time_split(splits))
    st.header("Measurements")
    metrics = sorted({metric for row in measured_rows for metric in row.measured})
    of_one = any((row.workers or 1) > 1 and not row.is_simulated for row in measured_rows)
    called = {names.PEAK_MEMORY_MB: f"{names.PEAK_MEMORY_MB} of worker 0"} if of_one else {}
    measurements = [
        [
            html.text(called.get(metric, metric), "dim"),
            *(html.number(interval_text(row.measured.get(metric))) for row in measured_rows),
        ]
        for metric in metrics
    ]
    html.draw(
        html.table(
            ["Metric", *(row.experiment for row in measured_rows)],
            measurements,
            numeric=range(1, 1 + len(measured_rows)),
            label="Measurements",
        )
    )
    if names.PEAK_MEMORY_MB in metrics and of_one:
        st.caption(
            "Peak memory is that of worker 0 only, even if several workers share a machine. The run's page shows the "
            "peak memory of each worker."
        )


def differences(differing: Sequence[tuple[str, Mapping[str, object]]], names: Sequence[str]) -> None:
    """Draw the config keys whose values differ, one in each row."""
    if not differing:
        st.caption("The configs of these runs do not differ.")
        return
    rows = [
        [html.text(key, "dim"), *(html.text(plain(values.get(name)), "wrap") for name in names)]
        for key, values in differing
    ]
    html.draw(html.table(["Key", *names], rows, label="Config differences"))


SAVE = "comparison-save"
NOT_A_NUMBER = Problem("wrong-type", "Target", "is not a number", "Enter a number, such as 0.95, or leave it empty.")


def comparison_form(plan: ComparisonPlan) -> tuple[ComparisonCell, list[Problem]]:
    """Draw the form of a comparison; returns the comparison as the form has it, and its problems."""
    cell, key = plan.cell, f"comparison-form-{plan.stored.path.name}-{plan.left_at or 0:.0f}"
    there = {cell.name for cell in plan.stored.notebook.experiments()}
    name = st.text_input("Name", cell.name, key=f"{key}-name")
    runs = st.multiselect(
        "Experiments", plan.offered, cell.runs, key=f"{key}-runs", placeholder="Choose experiments",
        format_func=lambda name: name if name in there else f"{name} (not in this notebook)",
        help=OF_CELLS["comparison"]["runs"],
    )  # fmt: skip
    left, right = st.columns(2)
    with left:
        options = [*dict.fromkeys([*plan.metrics, *([cell.metric] if cell.metric else [])])]
        metric = st.selectbox("Metric", options, options.index(cell.metric) if cell.metric else None,
                              key=f"{key}-metric", placeholder="The main metric of the runs",
                              accept_new_options=True, help="You can also type another name.")  # fmt: skip
        metric = (metric or "").strip()
        cell_goal = cell.goal if metric == cell.metric else None
        direction = choose_better(plan.better(runs, metric), cell_goal, f"{key}-better-{metric}") if metric else None
        hint = OF_CELLS["comparison"]["target"]
        target = number_box("Target", cell.target, f"{key}-target", empty="none", hint=hint)
    with right:
        axes = st.multiselect("X axis", AXES, cell.x, key=f"{key}-x", placeholder="Choose an axis",
                              help=OF_CELLS["comparison"]["x"])  # fmt: skip
        log = st.toggle("Log scale", cell.scale == "log", key=f"{key}-log", help="Logarithmic metric axis.")
    wrong = [NOT_A_NUMBER] if isinstance(target, str) else []
    reach = None if target is None or isinstance(target, str) else float(target)
    goal: Goal | None = None if direction is None or direction.source != "said" else "min" if direction.lower else "max"
    now = replace(cell, name=name.strip(), runs=runs, metric=metric, goal=goal, x=axes, target=reach,
                  scale="log" if log else "linear")  # fmt: skip
    return now, [*plan.problems(now), *wrong]


def comparison_buttons(wrong: list[Problem], stamp: str) -> Literal["save", "cancel"] | None:
    """Save is disabled while `wrong` is not empty; each problem is interval_text. `stamp` as in `state.Clicks`."""
    for problem in wrong:
        st.caption(f":red[{problem}]")
    with st.container(horizontal=True, horizontal_alignment="right"):
        if st.button("Cancel", key="comparison-cancel"):
            return "cancel"
        if press_button("Save", SAVE, stamp, type="primary", disabled=bool(wrong)):
            if not wrong:
                return "save"
            state.clicks().mark_handled(SAVE, done=False)  # clicked before the page had heard of what is wrong
    return None


def claim_title(judgement: Judgement) -> str:
    """The claim's name and verdict; if it changed since its lock, also the verdict on the locked claim."""
    locked, word = judgement.locked, judgement.verdict
    chips = html.chip(word.replace(" ", "-"), word)
    if locked is not None:
        chips += " " + html.chip(locked.verdict.replace(" ", "-"), f"as locked: {locked.verdict}")
    return html.name(judgement.cell.name, chips)


def draw_claim(judgement: Judgement) -> None:
    """Draw the claim in words, a row for each side, and remarks on the figures."""
    html.draw(f'<div class="sb-claim">{escape(judgement.sentence)}</div>')
    numeric = claim_table.numeric(judgement)
    rows = [
        [_claim_number(cell) if i in numeric else html.text(cell) for i, cell in enumerate(row)]
        for row in claim_table.cells(judgement)
    ]
    html.draw(html.table(claim_table.head(judgement), rows, numeric, label=f"Sides of {judgement.cell.name}"))
    for remark in claim_table.remarks(judgement):
        st.caption(remark)


def more_seeds_button(more: MoreSeeds, name: str, stamp: str) -> bool:
    """Draw the button that adds the seeds which would resolve the claim `name`, and how long their runs take. `stamp`
    as in `state.Clicks`."""
    each = ", ".join(f"{count} of {experiment}" for experiment, count in more.added.items())
    takes = "" if more.seconds is None else f", about {roughly(more.seconds)} on the cores of this machine"
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key=f"more-seeds-{name}"):
        clicked = press_button(
            f"Run {plural(sum(more.added.values()), 'more seed')}", f"add-seeds-{name}", stamp, icon=":material/add:",
            help=f"Sets repeats to {more.repeats} and starts the new runs. Existing runs are kept.",
        )  # fmt: skip
        st.caption(f"{each}: {more.repeats} seeds each{takes}.")
    return clicked


def _claim_number(cell: str) -> html.Cell:
    figure = cell.removesuffix(f" {own_metrics.SIGN}")
    return html.number(figure, own=figure != cell)


SAVE_CLAIM = "claim-form-save"
NOTHING = ""
PART_HINT = " To use a part of a search, type the part in the form `workers: 4`, and choose the search below."
RATIO = "Bounds on the ratio to the baseline: at most 0.8 means at least 20 % less."
OWN = "Bounds on the figure itself."
TARGET = OF_CELLS["claim"]["target"]
RATIOS = (
    "Compares a cost between two settings, such as two models. Each ratio has a separate metric, target and search."
)
SIDE_WORDS = {claim_body.OF: "Experiment", "against": "Baseline"}


def claim_form(
    plan: ClaimPlan, check: Callable[[Mapping[str, Any], str], list[Problem]], *, save_clicked: bool
) -> tuple[str, dict[str, Any], list[Problem]]:
    """Draw the form of a claim: the claim as a sentence, and each problem below its field; returns the name, the values
    by key, and the errors. `check` returns the problems of a claim. Empty fields are no errors before a click on Save
    (`save_clicked`)."""
    key, slots, written = f"claim-{plan.stored.path.name}-{plan.editing}", {}, plan.written
    sentence = st.empty()
    left, right = st.columns([3, 2], vertical_alignment="bottom")
    with left:
        name = st.text_input(FIELDS["name"], plan.name, key=f"{key}-name").strip()
    with right:
        of_ratios = st.toggle("Compare two ratios", plan.of_ratios, key=f"{key}-ratios", help=RATIOS)
    slots["name"] = st.empty()
    wrong: list[Problem] = []
    values = _ratios(plan, key, slots, wrong) if of_ratios else _sides(plan, key, slots, wrong)
    sides = [*values["runs"], values["against"]]
    if plan.searches and not of_ratios:
        values |= _search(plan.searches, written, key, slots)
    values |= _figure(plan, key, slots, sides, of_ratios, values.get("search", NOTHING))
    sentence.html(f'<div class="sb-claim">{escape(plan.sentence(values))}</div>')
    problems = wrong or check(values, name)
    _tell([problem for problem in problems if save_clicked or problem.code != "missing"], slots)
    return name, values, [problem for problem in problems if problem.severity == "error"]


def _sides(plan: ClaimPlan, key: str, slots: dict[str, DeltaGenerator], wrong: list[Problem]) -> dict[str, Any]:
    left, right = st.columns(2)
    with left:
        hint = "The claim must hold for each of these sides." + (PART_HINT if plan.searches else "")
        runs = st.multiselect(FIELDS["runs"], plan.sides, [data.side_text(run) for run in plan.runs],
                              key=f"{key}-runs", accept_new_options=bool(plan.searches), help=hint,
                              placeholder="Choose experiments")  # fmt: skip
        slots["runs"] = st.empty()
    with right:
        against = _side(
            plan, FIELDS["against"], plan.against, f"{key}-against", "nothing: the bounds apply to the figure itself"
        )
        slots["against"] = st.empty()
    sides = [_read(text, "runs", wrong) for text in runs]
    return {"runs": sides, "against": _read(against, "against", wrong) if against else None}


def _ratios(plan: ClaimPlan, key: str, slots: dict[str, DeltaGenerator], wrong: list[Problem]) -> dict[str, Any]:
    """Draw the two ratios, each in its own box."""
    by_field: dict[str, Mapping[str, Any]] = {}
    for place, field in zip(st.columns(2), ("runs", "against"), strict=True):
        before = plan.ratio(field)
        with place, st.container(border=True, key=f"{key}-{field}-ratio"):
            st.markdown(f"**{FIELDS[field]}**")
            sides = {}
            for word in (claim_body.OF, "against"):
                text = data.side_text(before[word]) if before.get(word) is not None else NOTHING
                sides[word] = _side(plan, SIDE_WORDS[word], text, f"{key}-{field}-{word}", "Choose one")
                slots[f"{field}.{word}"] = st.empty()
            parts = {word: _read(text, f"{field}.{word}", wrong) if text else None for word, text in sides.items()}
            chosen = _search(plan.searches, before, f"{key}-{field}", slots, f"{field}.") if plan.searches else {}
            both = [*parts.values()]
            metric = _metric(plan, before, f"{key}-{field}-metric", both, chosen.get("search", NOTHING))
            slots[f"{field}.metric"] = st.empty()
            target = number_box(FIELDS["target"], before.get("target"), f"{key}-{field}-target", hint=TARGET)
            slots[f"{field}.target"] = st.empty()
            slots[field] = st.empty()
        by_field[field] = {**parts, "metric": metric, "target": target, **chosen}
    return plan.ratios(by_field)


def _side(plan: ClaimPlan, label: str, text: str, key: str, empty: str) -> str:
    sides = list(dict.fromkeys([NOTHING, *plan.sides, text]))
    return st.selectbox(label, sides, sides.index(text), key=key, accept_new_options=bool(plan.searches),
                        format_func=lambda side: side or empty) or NOTHING  # fmt: skip


def _read(text: str, key: str, wrong: list[Problem]) -> Any:
    try:
        return data.side(text)
    except ConfigError as error:
        wrong.append(
            Problem("unknown-value", key, error.problem.message, "Enter a part of a search in the form workers: 4.")
        )
        return None


def _metric(
    plan: ClaimPlan, before: Mapping[str, Any], key: str, sides: Sequence[Any], search: str, curve: bool = True
) -> Any:
    """The metric as YAML, with its goal if a person chose one. `curve`: whether the figure depends on the goal."""
    metric = data.metric_of(before)
    metrics = list(dict.fromkeys([*plan.metrics, metric]))
    chosen = st.selectbox(FIELDS["metric"], metrics, metrics.index(metric), key=key, accept_new_options=True,
                          help="You can also type another name.")  # fmt: skip
    name = (chosen or "").strip()
    if not name or not curve:
        return name
    named_goal = data.goal_of(before) if name == metric else None
    direction = choose_better(plan.better(sides, search, name), named_goal, f"{key}-better-{name}")
    return directions.metric_text(name, None if direction.source != "said" else "min" if direction.lower else "max")


def _figure(
    plan: ClaimPlan, key: str, slots: dict[str, DeltaGenerator], sides: Sequence[Any], of_ratios: bool,
    search: str,
) -> dict[str, Any]:  # fmt: skip
    """Draw the figure and its bounds; metric and target too, unless `of_ratios`: each ratio has its own. `sides`: the
    baseline, or None, is the last."""
    written, options = plan.written, list(FIGURES)
    left, right = st.columns(2)
    with left:
        before = written.get("figure", "samples")
        figure = st.selectbox(FIELDS["figure"], options, options.index(before) if before in options else 0,
                              format_func=FIGURES.__getitem__, key=f"{key}-figure")  # fmt: skip
        slots["figure"] = st.empty()
    values: dict[str, Any] = {"figure": figure}
    if not of_ratios:
        with right:
            values["metric"] = _metric(plan, written, f"{key}-metric", sides, search, figure in (*names.AXES, "best"))
            slots["metric"] = st.empty()
    aims, hints = figure in names.AXES, {"target": TARGET}
    fields = ("at_least", "at_most") if of_ratios else ("target", "at_least", "at_most")
    for place, field in zip(st.columns(len(fields)), fields, strict=True):
        with place:  # always all three: what moves on a page forgets what is being typed into it
            hint, off = hints.get(field, RATIO if sides[-1] else OWN), field == "target" and not aims
            empty = "" if field == "target" else "no bound"
            values[field] = number_box(
                FIELDS[field], written.get(field), f"{key}-{field}", empty=empty, hint=hint, disabled=off
            )
            slots[field] = st.empty()
    if not aims:
        values.pop("target", None)
    return values


def _search(
    searches: Sequence[str], written: Mapping[str, Any], key: str, slots: dict[str, DeltaGenerator], prefix: str = ""
) -> dict[str, Any]:
    """Draw the choice of the search that parts belong to."""
    options = list(dict.fromkeys([NOTHING, *searches, written.get("search", NOTHING)]))
    search = st.selectbox(FIELDS["search"], options, options.index(written.get("search", NOTHING)),
                          key=f"{key}-search", format_func=lambda name: name or "none",
                          help=OF_CELLS["claim"]["search"])  # fmt: skip
    slots[f"{prefix}search"] = st.empty()
    return {"search": search} if search else {}


def _tell(problems: Sequence[Problem], slots: Mapping[str, DeltaGenerator]) -> None:
    """Show each problem below its field: errors in red, warnings in grey."""
    lines: dict[str, list[str]] = {}
    for problem in sorted(problems, key=lambda problem: problem.severity):  # errors first
        field = next((key for key in _above(problem.key) if key in slots), "name")
        label = ({**FIELDS, **SIDE_WORDS} if "." in field else FIELDS)[field.rpartition(".")[2]]
        words = f"{label}: {problem.message.rstrip('.')}. {problem.fix}"
        lines.setdefault(field, []).append(f":red[{words}]" if problem.severity == "error" else words)
    for field, words_ in lines.items():
        slots[field].caption("  \n".join(words_))


def _above(key: str) -> list[str]:
    """The key, then its parents; the form has one entry for the list `runs`."""
    parts = key.replace("runs.0.", "runs.").split(".")
    return [".".join(parts[:length]) for length in range(len(parts), 0, -1)]


def claim_buttons(enabled: bool, stamp: str) -> bool | None:
    """True: save; False: cancel; None: neither. `stamp` as in `state.Clicks`."""
    with st.container(horizontal=True, horizontal_alignment="right"):
        if st.button("Cancel", key="claim-form-cancel"):
            return False
        if press_button("Save", SAVE_CLAIM, stamp, type="primary", disabled=not enabled):
            return True if enabled else None
    return None
