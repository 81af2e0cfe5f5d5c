"""What is kept of a run: its config, its log, its files, the other runs of its experiment, what it ran under."""

import math
from collections.abc import Callable, Sequence

import streamlit as st

from scalebook.app.navigation import RUNS
from scalebook.app.runs.services.run_files import MOST_BYTES, RunFile
from scalebook.app.runs.services.runs import RunView, parted
from scalebook.app.shared import html
from scalebook.app.shared.widgets import code_block
from scalebook.app.shared.words import ago, figure, plural, spoken
from scalebook.training.durations import duration
from scalebook.training.tracking import names
from scalebook.training.tracking.reading import RunRecord

HEIGHT = 420
MOST_LINES = 1000


def config(text: str) -> None:
    code_block(text or "# not recorded", "yaml")


def log_box(whole: Callable[[], bytes] | None, name: str) -> str:
    """The box to search it by, and its download; returns what is looked for. `whole` gives all of it."""
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
    """Its end, which stays in sight while more is written; of a failed run from its first traceback on."""
    before, rest = parted(text) if failed else ("", text)
    if before:
        with st.expander(f"Earlier output: {plural(before.count(chr(10)), 'line')}"):
            code_block(before, height=HEIGHT)
    with st.container(height=HEIGHT, autoscroll=not failed, border=False, key="log-end"):
        code_block(rest or "nothing written yet")


def other_log(machine: str, text: str) -> None:
    """Of another machine of the run."""
    with st.expander(f"Log of {machine}"):
        code_block(text or "nothing written yet", height=HEIGHT)


def log_lines(lines: Sequence[tuple[int, str]], total: int) -> None:
    """Those that were looked for, with their numbers."""
    most = f", the last {MOST_LINES:,} of them below" if len(lines) > MOST_LINES else ""
    st.caption(f"{len(lines):,} of {plural(total, 'line')}{most}")
    if lines:
        wide = len(str(lines[-1][0]))
        shown = "\n".join(f"{number:>{wide}}  {line}" for number, line in lines[-MOST_LINES:])
        code_block(shown, height=HEIGHT)


def files(listed: Sequence[RunFile]) -> None:
    """A line for each, with a button that downloads it."""
    if not listed:
        st.caption("No files yet: checkpoints appear after an epoch, artifacts after the run.")
    for i, file in enumerate(listed):
        name, size, button = st.columns([6, 2, 2], vertical_alignment="center")
        with name:
            st.markdown(f"`{file.name}`" if file.kind == "artifact" else f"`{file.name}` · {file.kind}")
        with size:
            html.draw(f'<span class="sb-dim">{in_bytes(file.size)}</span>')
        with button:
            if file.size > MOST_BYTES:
                st.caption(f"too large to download; see {file.path}" if file.path else "too large to download")
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


def others(views: Sequence[RunView], shown: str, config_hash: str) -> None:
    """The runs of one experiment; `shown` is the id of the one whose page this is, `config_hash` that of its config."""
    metric = names.main_metric(key for view in views for key in view.metrics)
    head = ["Run", "State", "Started", "Config", *([f"best {metric}"] if metric else []), "time"]
    rows = []
    for view in views:
        same = view.record.tags.get(names.TAG_CONFIG_HASH) == config_hash
        title = f"seed {view.record.tags.get(names.TAG_SEED, '?')}"
        row = [
            html.text(f"{title} (this one)") if view.id == shown else html.link(title, RUNS.url(run=view.id)),
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
