"""The parts of the page of one run, in its order: state, failure, curves, records."""

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Literal

import streamlit as st

from scalebook.app.navigation import RUNS
from scalebook.app.one_run.data import MOST_BYTES, RunFile
from scalebook.app.runs import run_query
from scalebook.app.runs.data import RunView, split_log
from scalebook.app.runs.widgets import progress_bar
from scalebook.app.shared import charts, html, style
from scalebook.app.shared.charts import CurveLook, Series
from scalebook.app.shared.widgets import code_block
from scalebook.app.shared.words import ago, figure, plural, sentence, spoken
from scalebook.training.base import duration
from scalebook.training.tracking import MetricCurve, RunRecord, names, own_metrics

Intent = Literal["stop", "resume", "again", "duplicate"]
MOST_CHANGES = 12


def head(view: RunView) -> None:
    """Draw the title, the state, and a line on model, strategy, batch and rate."""
    record = view.record
    chips = html.chip(view.state) + (html.chip("virtual", "virtual workers") if view.is_simulated else "")
    if purpose := run_query.purpose(record):
        chips += html.chip("new", purpose)
    html.draw(html.name(view.title, chips, page=True))
    tags = record.tags
    parts = [
        " on ".join(tags[key].rsplit(".", 1)[-1] for key in (names.TAG_MODEL, names.TAG_DATA) if tags.get(key)),
        view.strategy,
        f"batch {tags[names.TAG_BATCH_PER_WORKER]} per worker" if tags.get(names.TAG_BATCH_PER_WORKER) else "",
        _rate(tags),
        f"started {ago(view.began)}" if view.began else "",
        _took(view) if view.ended else "",
    ]
    html.draw(f'<div class="sb-summary">{" · ".join(escape(part) for part in parts if part)}</div>')
    if words := names.time_words([view.is_simulated]):
        st.caption(words)


def _rate(tags: Mapping[str, str]) -> str:
    """The applied learning rate, and the configured one if it was scaled."""
    base, scaled = tags.get(names.TAG_LR_ASKED), tags.get(names.TAG_LR_SCALED)
    if not base:
        return ""
    return f"learning rate {float(scaled or base):g}" + (f", scaled from {float(base):g}" if scaled else "")


def _took(view: RunView) -> str:
    if view.seconds is None:
        return "never started"
    return f"took {duration(view.seconds)}{' of real time' if view.is_simulated else ''}"


def buttons(view: RunView, mlflow_url: str | None) -> Intent | None:
    """Draw the buttons that the run's state allows; returns the clicked one."""
    intent: Intent | None = None
    with st.container(horizontal=True, horizontal_alignment="right"):
        if not view.ended and view.job and st.button("Stop", icon=":material/stop:", disabled=view.state == "stopping"):
            intent = "stop"
        if view.resumable and st.button(
            "Resume", icon=":material/resume:", help="Continues from the run's last checkpoint."
        ):
            intent = "resume"
        if (
            view.ended
            and view.job
            and st.button("Run again", icon=":material/replay:", help="Starts again from update 0.")
        ):
            intent = "again"
        if view.record.cell and st.button("Duplicate", icon=":material/content_copy:"):
            intent = "duplicate"
        if mlflow_url:
            st.link_button("Open in MLflow", mlflow_url, icon=":material/open_in_new:")
    return intent


def standing(view: RunView) -> None:
    """Draw the progress of an active run, or why a run ended early."""
    progress_bar(view)
    if own := view.record.tags.get(names.TAG_OWN_SEED):
        st.warning(
            f"The model or the data calls seed_everything or manual_seed itself, with the seed {own}, so the seed of "
            "this run does not determine its random numbers. Remove that call.",
            icon=":material/warning:",
        )
    if view.lost:
        st.warning(f"{sentence(view.lost)} The log has the details.", icon=":material/warning:")
    if view.state == "failed":
        _failure(view)
    elif view.state == "pruned":
        st.info(f"The search pruned this run. {sentence(view.pruned)}")
    elif view.state == "stopped":
        remark = "Its records are below" if view.seconds is not None else "It had not started"
        st.info(
            f"This run was {view.stopped}. {remark}"
            f"{'; Resume continues from its last checkpoint' if view.resumable else ''}."
        )


def _failure(view: RunView) -> None:
    """Draw class, cause and remedy of the failure; if the user's own code raised it, its lines too."""
    words = f"**{sentence(view.failure)}** {sentence(view.cause)}"
    if view.frame:
        words = f"**{view.failure[:1].upper()}{view.failure[1:]}:** {sentence(view.cause)}"
    st.error(f"{words}\n\n{view.advice}" if view.advice else words, icon=":material/error:")
    if view.frame:
        code_block(view.frame)


def figures(view: RunView) -> None:
    """The main results in a row."""
    metrics = view.metrics
    main = names.main_metric(metrics)
    pairs: list[tuple[str, float | None, int]] = []
    if main:
        own = own_metrics.sign(view.record.tags, main)
        pairs.append((f"best {main}{own}", metrics.get(names.best(main)), 4))
        pairs.append((f"{view.last_word} {main}{own}", metrics.get(names.final(main), metrics.get(main)), 4))
    second = "virtual s" if view.is_simulated else "s"
    pairs += [
        ("updates", metrics.get(names.UPDATES), 1),
        (f"updates/{second}", metrics.get(names.UPDATES_PER_SECOND), 3),
        (f"samples/{second}", metrics.get(names.SAMPLES_PER_SECOND), 3),
        ("gradients per update", _several(metrics.get(names.GRADIENTS_PER_UPDATE)), 3),
        ("mean staleness", metrics.get(names.STALENESS_MEAN), 3),
        ("dropped", metrics.get(names.DROPPED) or None, 1),
        (f"peak memory{' of worker 0' if view.workers > 1 else ''}, MB", metrics.get(names.PEAK_MEMORY_MB), 3),
    ]
    rate = metrics.get(names.UPDATES_PER_SECOND, math.nan)
    for way, name in (("pushed", names.PUSHED_PER_UPDATE), ("pulled", names.PULLED_PER_UPDATE)):
        if metrics.get(name):
            pairs.append((f"kB {way} per update", metrics[name] / 1e3, 3))
            pairs.append((f"MB/s {way}", None if math.isnan(rate) else metrics[name] * rate / 1e6, 3))
    labelled = [(label, figure(value, digits)) for label, value, digits in pairs if value is not None]
    if labelled:
        html.facts(labelled)


def _several(each: float | None) -> float | None:
    """None if each update has one gradient (a few in flight at the end do not count)."""
    return None if each is None or round(each, 1) == 1 else each


def curves(metric_curves: Sequence[MetricCurve], look: CurveLook, live: bool, tags: Mapping[str, str]) -> None:
    """Draw a chart for each metric, two in a row, also for a single metric while more may come."""
    columns = st.columns(2, gap="medium") if live or len(metric_curves) > 1 else [st.container()]
    for i, curve in enumerate(metric_curves):
        series = [Series(curve.metric, *curve.on(look.axis), charts.PALETTE[0])]
        with columns[i % len(columns)]:
            title = curve.metric + own_metrics.sign(tags, curve.metric)
            _chart(series, look, title, f"curve-{curve.metric}", curve.metric, height=280)
    _explain(metric_curves, tags)


def _explain(metric_curves: Sequence[MetricCurve], tags: Mapping[str, str]) -> None:
    if any(own_metrics.is_own(tags, curve.metric) for curve in metric_curves):
        st.caption(f"{own_metrics.SIGN} {own_metrics.WORDS}")


def together(metric_curves: Sequence[MetricCurve], look: CurveLook, tags: Mapping[str, str]) -> None:
    """Draw all metrics in one chart, on one scale."""
    series = [
        Series(
            curve.metric + own_metrics.sign(tags, curve.metric),
            *curve.on(look.axis),
            charts.PALETTE[i % len(charts.PALETTE)],
        )
        for i, curve in enumerate(metric_curves)
    ]
    _chart(series, look, "", "curves-together", ", ".join(curve.metric for curve in metric_curves), height=400)
    _explain(metric_curves, tags)


def _chart(series: Sequence[Series], look: CurveLook, title: str, key: str, what: str, height: int) -> None:
    drawn = charts.lines(
        series,
        x_title=look.x_title,
        title=title,
        log_y=look.log_y,
        smoothing=look.smoothing,
        dark=style.dark(),
        height=height,
    )
    charts.draw(drawn, key, f"{what} against {look.axis}")


def metrics_choice(offered: Sequence[str]) -> tuple[list[str], bool]:
    """Draw the choice of metrics; returns them (none: the main ones), and whether to draw one chart."""
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        chosen = st.multiselect("Metrics", offered, key="metrics", placeholder="The main metrics", width=420,
                                label_visibility="collapsed")  # fmt: skip
        return chosen, st.toggle("In one chart", key="together", bind="query-params")


def samples(picture: bytes | None) -> None:
    """Draw the last samples of a generative model."""
    if picture is not None:
        st.header("Samples generated by the model")
        st.image(picture, width=320)


def stale_notice(changes: Sequence[str]) -> None:
    """Say that the experiment has changed since the run, and how."""
    more = len(changes) - MOST_CHANGES
    listed = "; ".join([*changes[:MOST_CHANGES], *([f"and {more} more"] if more > 0 else [])])
    words = (
        f"The experiment has changed since this run: {listed}."
        if changes
        else "The experiment has been rewritten since this run."
    )
    html.draw(f'<div class="sb-summary">{html.chip("stale")} {escape(words)}</div>')


LOG_HEIGHT = 420
MOST_LINES = 1000


def config(text: str) -> None:
    code_block(text or "# not recorded", "yaml")


def log_box(whole: Callable[[], bytes] | None, name: str) -> str:
    """Draw the search box and the download button of a log; returns the text to find. `whole` returns the whole log."""
    with st.container(horizontal=True, vertical_alignment="center"):
        text: str = st.text_input(
            "Find in the log", key="find-in-log", placeholder="Find in the log", label_visibility="collapsed",
            icon=":material/search:", width=320,
        )  # fmt: skip
        if whole is not None:
            st.download_button(
                "Download", whole, f"{name}.txt", "text/plain", key="download-log", on_click="ignore",
                icon=":material/download:", type="tertiary",
            )  # fmt: skip
    return text.strip()


def log(text: str, failed: bool) -> None:
    """Draw the end of a log, which stays in view while the run writes; for a failed run, from its first traceback."""
    before, rest = split_log(text) if failed else ("", text)
    if before:
        with st.expander(f"Earlier output: {plural(before.count(chr(10)), 'line')}"):
            code_block(before, height=LOG_HEIGHT)
    with st.container(height=LOG_HEIGHT, autoscroll=not failed, border=False, key="log-end"):
        code_block(rest or "nothing written yet")


def other_log(node: str, text: str) -> None:
    """Draw the log of another node of the run."""
    with st.expander(f"Log of {node}"):
        code_block(text or "nothing written yet", height=LOG_HEIGHT)


def log_lines(lines: Sequence[tuple[int, str]], total: int) -> None:
    """Draw the matching lines with their numbers."""
    most = f", the last {MOST_LINES:,} of them below" if len(lines) > MOST_LINES else ""
    st.caption(f"{len(lines):,} of {plural(total, 'line')}{most}")
    if lines:
        wide = len(str(lines[-1][0]))
        text = "\n".join(f"{number:>{wide}}  {line}" for number, line in lines[-MOST_LINES:])
        code_block(text, height=LOG_HEIGHT)


def files(listed: Sequence[RunFile]) -> None:
    """Draw a line for each file, with a button that downloads it."""
    if not listed:
        st.caption("No files yet. Checkpoints appear after an epoch, and artifacts after the run.")
    for i, file in enumerate(listed):
        name, size, button = st.columns([6, 2, 2], vertical_alignment="center")
        with name:
            st.markdown(f"`{file.name}`" if file.kind == "artifact" else f"`{file.name}` · {file.kind}")
        with size:
            html.draw(f'<span class="sb-dim">{in_bytes(file.size)}</span>')
        with button:
            if file.size > MOST_BYTES:
                st.caption(f"too large to download; the file is {file.path}" if file.path else "too large to download")
            else:
                st.download_button(
                    "Download", file.read, file.name.rpartition("/")[2], key=f"file-{i}-{file.name}", on_click="ignore",
                    type="tertiary", icon=":material/download:",
                )  # fmt: skip


def in_bytes(size: int) -> str:
    """`812 B`, `1.5 MB`."""
    if size < 1000:
        return f"{size} B"
    power = min(3, int(math.log10(size) / 3 + 1e-9))
    return f"{size / 1000**power:.3g} {('kB', 'MB', 'GB')[power - 1]}"


def others(views: Sequence[RunView], this_run: str, config_hash: str) -> None:
    """The runs of one experiment. `this_run` is the id of the page's run, `config_hash` the hash of its config."""
    metric = names.main_metric(key for view in views for key in view.metrics)
    head = ["Run", "State", "Started", "Config", *([f"best {metric}"] if metric else []), "time"]
    rows = []
    for view in views:
        same = view.record.tags.get(names.TAG_CONFIG_HASH) == config_hash
        title = f"seed {view.record.tags.get(names.TAG_SEED, '?')}"
        row = [
            html.text(f"{title} (this one)") if view.id == this_run else html.link(title, RUNS.url(run=view.id)),
            html.Cell(html.chip(view.state)),
            html.text(ago(view.began) if view.began else "", "dim"),
            html.text("the same" if same else "another", "dim"),
        ]
        if metric:
            row.append(html.number(figure(view.metrics.get(names.best(metric)))))
        rows.append([*row, html.number(duration(view.seconds))])
    html.draw(html.table(head, rows, numeric=range(4, len(head))))


def environment(record: RunRecord) -> None:
    tags = {key: value for key, value in sorted(record.tags.items()) if key.startswith("scalebook.") and value}
    rows = [
        [html.text(spoken(key.removeprefix("scalebook.")), "dim"), html.text(value, "wrap")]
        for key, value in tags.items()
    ]
    html.draw(html.table(["What", "Value"], [*rows, [html.text("run id", "dim"), html.text(record.id)]]))
