"""A comparison: curves on one axis, a table, and what differs."""

from collections.abc import Mapping, Sequence

import streamlit as st

from scalebook.app.navigation import COMPARE, RUNS
from scalebook.app.shared import charts, html, style
from scalebook.app.shared.charts import Series
from scalebook.app.shared.words import figure, interval, plain
from scalebook.training.config.workload import strategy_words
from scalebook.training.curves import mean_curve
from scalebook.training.estimate import Estimate, Reached
from scalebook.training.notebook.cells import Axis
from scalebook.training.notebook.comparison import Comparison
from scalebook.training.notebook.rows import ExperimentRow, told
from scalebook.training.notebook.why import sentences
from scalebook.training.tracking.names import axis_words, time_words
from scalebook.training.tracking.own_metrics import SIGN, WORDS


def colours(comparison: Comparison) -> dict[str, str]:
    """A colour for each row, in their order."""
    return {row.experiment: charts.PALETTE[i % len(charts.PALETTE)] for i, row in enumerate(comparison.rows)}


def curves(
    comparison: Comparison, axis: Axis, log_y: bool, key: str, height: int = 400, smoothing: float = 0.0
) -> None:
    """One line a row; for several seeds their mean with its interval, the seeds faint behind it."""
    lines: list[Series] = []
    by_run = {curve.run_id: curve for curve in comparison.curves}
    for name, colour in colours(comparison).items():
        row = next(row for row in comparison.rows if row.experiment == name)
        mine = [by_run[run] for run in row.run_ids if run in by_run and by_run[run].values]
        mean = mean_curve(mine, axis)
        lines += [Series(name, *curve.on(axis), colour, faint=mean is not None) for curve in mine]
        if mean is not None:
            lines.append(Series(name, mean.x, mean.mean, colour, low=mean.low, high=mean.high))
    if not lines:
        html.empty("Nothing to draw yet", f"None of these runs has logged {comparison.metric} yet.")
        return
    simulated = [row.is_simulated for row in comparison.rows]
    drawn = charts.lines(
        lines,
        x_title=axis_words(axis, simulated),
        y_title=comparison.metric,
        log_y=log_y,
        smoothing=smoothing,
        target=comparison.target,
        dark=style.dark(),
        height=height,
    )
    charts.draw(drawn, key, f"{comparison.metric} against {axis}")


def table(comparison: Comparison) -> None:
    """What each reached, how fast, at what cost; the best value in bold. A name leads to its runs."""
    head = [
        "Experiment",
        "Strategy",
        "Batch per worker",
        "Learning rate",
        f"best {comparison.metric}",
        _last(comparison),
    ]
    if comparison.target is not None:
        head += [f"{axis} to {comparison.target:g}" for axis in told(comparison.rows)]
    stale = any(row.staleness_mean for row in comparison.rows)
    head += ["updates/s", "samples/s", *(["staleness", "staleness p95"] if stale else []), "runs"]
    shades, best = colours(comparison), winner(comparison)
    rows = [_row(row, comparison, shades[row.experiment], row is best, stale) for row in comparison.rows]
    html.draw(html.table(head, rows, numeric=range(2, len(head))))
    own = f"{SIGN} {WORDS}" if any(row.is_own for row in comparison.rows) else ""
    for remark in (own, resolution(comparison), time_words([row.is_simulated for row in comparison.rows])):
        if remark:
            st.caption(remark)
    for row in comparison.rows:
        if row.note:
            st.caption(f"**{row.experiment}**: {row.note}")


def _last(comparison: Comparison) -> str:
    """The head of the last values."""
    return "latest" if any(row.outcome in ("running", "waiting") for row in comparison.rows) else "final"


def _row(row: ExperimentRow, comparison: Comparison, colour: str, best: bool, stale: bool) -> list[html.Cell]:
    runs, name = row.run_ids, html.text(row.experiment)
    if runs:
        url = RUNS.url(run=runs[0]) if len(runs) == 1 else COMPARE.url(runs=",".join(runs))
        name = html.link(row.experiment, url)
    cells = [
        html.Cell(
            html.swatch(colour)
            + name.html
            + ("" if row.outcome == "finished" else " " + html.chip(_chip(row.outcome), row.outcome))
        ),
        html.text(strategy_words(row.strategy, row.rule, row.workers, row.is_simulated)),
        html.number("" if row.batch_per_worker is None else str(row.batch_per_worker)),
        html.number("" if row.learning_rate is None else f"{row.learning_rate:g}"),
        html.number(shown(row.best), best=best, own=row.is_own),
        html.number(shown(row.final), own=row.is_own),
    ]
    if comparison.target is not None:
        cells += [html.number(to_target(row.to_target, axis)) for axis in told(comparison.rows)]
    cells += [html.number(rate(row, row.updates_per_second)), html.number(rate(row, row.samples_per_second))]
    if stale:
        cells.append(html.number(shown(row.staleness_mean, 3)))
        cells.append(html.number("" if row.staleness_p95 is None else f"{row.staleness_p95.mean:.0f}"))
    done = len(row.run_ids)
    return [*cells, html.number(f"{done}" if done == row.seeds else f"{done} of {row.seeds}")]


def _chip(outcome: str) -> str:
    return "new" if outcome == "missing" else outcome


def shown(value: Estimate | None, digits: int = 4) -> str:
    """`2.103 ± 0.012`."""
    if value is None:
        return ""
    return interval(value.mean, value.half) if digits == 4 else figure(value.mean, digits)


def rate(row: ExperimentRow, value: Estimate | None) -> str:
    """So many a second: `65.0`, of virtual workers `65.0 virtual`."""
    words = shown(value, 3)
    return f"{words} virtual" if words and row.is_simulated else words


def to_target(reached: Mapping[Axis, Reached], axis: Axis) -> str:
    """The mean amount, or how many of the runs reached the target where some did not: their mean would flatter."""
    share = reached.get(axis)
    if share is None or share.runs == 0:
        return ""
    if share.estimate is None:
        return "missed" if share.reached == 0 else f"{share.reached} of {share.runs} only"
    return figure(share.estimate.mean, 3)


def ranked(comparison: Comparison) -> list[tuple[Estimate, ExperimentRow]]:
    """Rows that have a value, the best mean first."""
    known = [(row.best, row) for row in comparison.rows if row.best is not None]
    return sorted(known, key=lambda pair: pair[0].mean, reverse=not comparison.lower_is_better)


def winner(comparison: Comparison) -> ExperimentRow | None:
    """The row with the best mean, where there are at least two to compare."""
    known = ranked(comparison)
    return known[0][1] if len(known) > 1 else None


def resolution(comparison: Comparison) -> str:
    """A sentence on whether the seeds tell the best row from the next; "" where there is nothing to tell apart."""
    known = ranked(comparison)
    if len(known) < 2:
        return ""
    (first, first_row), (second, second_row) = known[:2]
    if first.half is None or second.half is None:
        return "One seed gives no interval: small differences may be chance."
    if abs(first.mean - second.mean) > first.half + second.half:
        return ""
    pair = f"{first_row.experiment} and {second_row.experiment}"
    return f"These seeds cannot distinguish {pair}: their 95 % intervals overlap."


def why(comparison: Comparison) -> None:
    """A sentence for each row whose recorded figures differ notably from the others'."""
    for name, sentence in sentences(comparison.rows):
        st.caption(f"**{name}**: {sentence}")


def measured(rows: Sequence[ExperimentRow]) -> None:
    """Where the time went, a bar a row; below them every figure that was measured about the runs, a column a row."""
    known = [row for row in rows if row.measured]
    if not known:
        return
    splits = [(row.experiment, row.shares) for row in known if row.shares]
    if splits:
        st.header("Where the time went")
        html.draw(charts.time_split(splits))
    st.header("Measurements")
    metrics = sorted({metric for row in known for metric in row.measured})
    table = [
        [html.text(metric, "dim"), *(html.number(shown(row.measured.get(metric))) for row in known)]
        for metric in metrics
    ]
    html.draw(html.table(["Metric", *(row.experiment for row in known)], table, numeric=range(1, 1 + len(known))))


def differences(differing: Sequence[tuple[str, Mapping[str, object]]], names: Sequence[str]) -> None:
    """Only the keys whose values differ, one a row."""
    if not differing:
        st.caption("Their configs do not differ.")
        return
    rows = [
        [html.text(key, "dim"), *(html.text(plain(values.get(name)), "wrap") for name in names)]
        for key, values in differing
    ]
    html.draw(html.table(["Key", *names], rows))
