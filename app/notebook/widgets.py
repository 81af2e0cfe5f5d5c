"""Parts of the notebook's page: its first row, and the card of an experiment."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final, Literal

import streamlit as st

from scalebook.app.navigation import RUNS
from scalebook.app.runs.data import RunView, SeedView, experiment_state, next_first
from scalebook.app.runs.widgets import progress_bar, progress_words
from scalebook.app.shared import html
from scalebook.app.shared.notebooks import NotebookChoice
from scalebook.app.shared.widgets import (
    CELL_PLACES,
    CellIntent,
    code_block,
    confirmed_anyway,
    press_button,
    show_problems,
)
from scalebook.app.shared.words import ExperimentSummary, figure, interval, plural, sentence
from scalebook.training.base import Problem, code_changes, duration
from scalebook.training.notebook import lost_workers, shared_numbers
from scalebook.training.tracking import estimate, names, own_metrics

HeadIntent = Literal[
    "undo", "history", "new notebook", "ask", "new experiment", "rename", "duplicate", "delete", "deleted", "own model"
]
UNDO = "notebook-undo"
ASK_ICON = ":material/contact_support:"
ASK_HINT = (
    "Do more workers help? What do other update methods cost? Which batch size and learning rate should I use? Is A "
    "better than B?"
)
WHOLE: dict[str, HeadIntent] = {"Rename": "rename", "Duplicate": "duplicate", "Delete": "delete"}
OWN_MODEL: dict[str, HeadIntent] = {"Use my own model": "own model"}
DELETED: dict[str, HeadIntent] = {"Deleted notebooks": "deleted"}


@dataclass(frozen=True)
class NotebookExports:
    """What makes the files of an export when they are downloaded."""

    html: Callable[[], str]
    archive: Callable[[], bytes]


@dataclass(frozen=True)
class NotebookHead:
    """What the first row of the page asks for: the picked notebook, and the clicked button."""

    picked: str | None
    intent: HeadIntent | None


def notebook_head(
    choices: Sequence[NotebookChoice],
    chosen: NotebookChoice | None,
    undo: str | None,
    exports: NotebookExports | None = None,
    *,
    whole: bool = False,
    deleted: bool = False,
) -> NotebookHead:
    """Draw the first row: picker, Undo, History, Export, a menu, New notebook, Ask, New experiment; in an empty folder
    the menu alone.

    `undo` is the stamp of the state that Undo starts from, None without an earlier state. `exports`
    is None if the notebook cannot be read. `whole`: the notebook can be renamed, duplicated and
    deleted now; `deleted`: there are deleted notebooks to restore.
    """
    intent: HeadIntent | None = None
    picked = chosen.name if chosen else None
    left, right = st.columns([2, 3], vertical_alignment="center")
    with left:
        if choices:
            titles = {choice.name: choice.label for choice in choices}
            names = list(titles)
            picked = st.selectbox(
                "Notebook",
                names,
                names.index(picked) if picked else None,
                format_func=lambda name: titles.get(name, name),
                label_visibility="collapsed",
                key=f"picker.{picked}",
                placeholder="Choose a notebook",
            )
    with right, st.container(horizontal=True, horizontal_alignment="right"):
        if chosen:
            if press_button(
                "Undo", UNDO, undo or "", icon=":material/undo:", type="tertiary", disabled=undo is None,
                help="Undo the last saved change.",
            ):  # fmt: skip
                intent = "undo"
            if st.button("History", key="notebook-history", icon=":material/history:", type="tertiary",
                         help="The last 50 states of this notebook, to view or restore."):  # fmt: skip
                intent = "history"
        if chosen and exports is not None:
            _export(chosen.name, exports)
        menu = {**(WHOLE if whole else {}), **(OWN_MODEL if choices else {}), **(DELETED if deleted else {})}
        if menu and (
            entry := st.menu_button("More", list(menu), key="notebook-more", type="tertiary",
                                    icon=":material/more_horiz:")
        ):  # fmt: skip
            intent = menu[entry]
        if choices and st.button("New notebook", icon=":material/note_add:", type="secondary" if chosen else "primary"):
            intent = "new notebook"
        if chosen and st.button("Ask", key="notebook-ask", icon=ASK_ICON, help=ASK_HINT):
            intent = "ask"
        if chosen and st.button("New experiment", icon=":material/add:", type="primary"):
            intent = "new experiment"
    return NotebookHead(picked, intent)


def _export(name: str, exports: NotebookExports) -> None:
    with st.popover("Export", icon=":material/download:", type="tertiary"):
        st.download_button(
            "HTML", exports.html, f"{name}.html", "text/html", key="notebook-export-html", on_click="ignore",
            icon=":material/article:", width="stretch",
        )  # fmt: skip
        st.caption("One page for readers, with verdicts, text and charts. It opens in any browser and can be printed.")
        st.download_button(
            "Archive", exports.archive, f"{name}.zip", "application/zip", key="notebook-export-archive",
            on_click="ignore", icon=":material/folder_zip:", width="stretch",
        )  # fmt: skip
        st.caption(
            "For people who want to check the results: every curve, the configs and your code. To check the archive, "
            "use `scalebook notebook verify`."
        )


CardIntent = (
    Literal["run", "stop", "ask", "edit", "search", "plan", "duplicate", "delete", "comparison", "simulate"]
    | CellIntent
)
MOST_BARS: Final = 8
"""Running runs that have a bar each."""
MOST_ROWS: Final = 12
"""Rows of a card's table until it is opened."""
MOST_FAILURES: Final = 3
MOST_NAMED: Final = 8
_ATTENTION: Final = {"failed": 0, "running": 1, "stopping": 1}
MORE_WORKERS: dict[str, CardIntent] = {"Simulate more workers than this machine can run": "simulate"}
CARD_MENU: dict[str, CardIntent] = {**CELL_PLACES, "Add a comparison below": "comparison", "Delete": "delete"}


def experiment_card(
    name: str,
    repeats: int,
    line: ExperimentSummary,
    seeds: Sequence[SeedView],
    problems: Sequence[Problem],
    page: str,
    crowd: str,
    real_server: bool,
) -> CardIntent | None:
    """Draw the card of an experiment: its line, its runs by seed, its buttons; returns the clicked one.

    `page` identifies this state of the notebook.

    Run is disabled until the user confirms the warning `crowd`. `real_server`: real workers push to a parameter server.
    """
    head = st.container()
    wrong = any(problem.severity == "error" for problem in problems)
    blocked = wrong or not confirmed_anyway(crowd, f"crowd-{name}-{crowd}")
    with head:
        intent = _card_head(name, seeds, blocked, page, {**(MORE_WORKERS if real_server else {}), **CARD_MENU})
    _card_summary(line, repeats)
    show_problems(problems)
    with_runs = [seed for seed in seeds if seed.run is not None]
    _show_progress(with_runs)
    _show_results(name, with_runs)
    for words in failure_words(with_runs):
        st.error(words, icon=":material/error:")
    records = [seed.run.record for seed in with_runs if seed.run and not seed.stale]
    for words in (shared_numbers(records), lost_workers(records)):
        if words:
            st.warning(sentence(words), icon=":material/warning:")
    return intent


CHART_PX: Final = 600
ROW_PX: Final = 34


def far_card(name: str, word: str, rows: int, kind: str) -> None:
    """Draw what stands for a card until it is drawn: its name, the `word` for its state, about its height."""
    height = CHART_PX if kind == "comparison" else ROW_PX * (2 + min(rows, MOST_ROWS))
    chip = html.chip(word, "not run yet" if word == "new" else None) if word else ""
    html.draw(f'<div style="min-height: {height}px">{html.name(name, chip)}</div>')


def _show_progress(seeds: Sequence[SeedView]) -> None:
    """Draw a bar for each of the first runs that have begun, and a common one if several wait: `50 of 240 runs have
    ended, 190 are waiting. Next is seed 51: waits for 2 cores; ...`."""
    open_runs = [seed for seed in seeds if seed.run is not None and not seed.run.ended]
    waiting = [seed for seed in open_runs if seed.state == "waiting"]
    together = len(waiting) > 1
    begun = [seed for seed in open_runs if not together or seed.state != "waiting"]
    for seed in begun[:MOST_BARS]:
        if seed.run is not None:
            progress_bar(seed.run, f"seed {seed.seed}: " if len(seeds) > 1 else "")
    if together:
        ended, more = len(seeds) - len(open_runs), len(begun) - MOST_BARS
        first = next_first([seed.run for seed in waiting if seed.run is not None])[0]
        counts = [f"{ended} of {len(seeds)} runs have ended", *([f"{more} more are running"] if more > 0 else [])]
        words = f"{', '.join(counts)}, {len(waiting)} are waiting. Next is seed {first.seed}: {progress_words(first)}"
        st.progress(ended / len(seeds), text=words)


def failure_words(seeds: Sequence[SeedView]) -> list[str]:
    """A message for each cause of failure, with the seeds that failed so; after MOST_FAILURES the number of others."""
    by_cause: dict[str, list[int]] = {}
    for seed in seeds:
        if seed.run is not None and seed.run.state == "failed" and not seed.stale:
            words = f"{seed.run.failure}.** {sentence(seed.run.cause)} {seed.run.advice}"
            by_cause.setdefault(words, []).append(seed.seed)
    messages = [
        f"**{'Seed' if len(failed) == 1 else 'Seeds'} {number_list(failed)}: {words}"
        for words, failed in list(by_cause.items())[:MOST_FAILURES]
    ]
    others = sum(map(len, list(by_cause.values())[MOST_FAILURES:]))
    return [*messages, *([f"{plural(others, 'other run')} failed. The table lists them."] if others else [])]


def number_list(numbers: Sequence[int]) -> str:
    """`1, 2, 3 and 37 more`."""
    few = ", ".join(str(number) for number in numbers[:MOST_NAMED])
    return f"{few} and {len(numbers) - MOST_NAMED} more" if len(numbers) > MOST_NAMED else few


def _show_results(name: str, seeds: Sequence[SeedView]) -> None:
    """Draw the table of the runs. That of many runs leaves out those that wait and, until it is opened, all but those
    that failed or run and the first of the others."""
    listed = seeds if len(seeds) <= MOST_ROWS else [seed for seed in seeds if seed.state != "waiting"]
    if listed:
        html.draw(results(listed, MOST_ROWS))
    if len(listed) > MOST_ROWS:
        with (fold := st.expander(f"All {len(listed)} runs", key=f"all-runs-{name}", on_change="rerun")):
            if fold.open:
                html.draw(results(listed))


def _card_head(
    name: str, seeds: Sequence[SeedView], blocked: bool, page: str, menu: Mapping[str, CardIntent]
) -> CardIntent | None:
    word = experiment_state(seeds)
    live = word in ("running", "waiting", "stopping")
    chips = html.chip(word, "not run yet" if word == "new" else None)
    if changed := [seed.changed for seed in seeds if seed.stale]:
        chips += " " + html.chip("stale", f"stale: {code_changes.changed_words(changed)}")
    if any(seed.run is not None and seed.run.is_simulated for seed in seeds):
        chips += " " + html.chip("virtual", "virtual workers")
    title, buttons = st.columns([3, 2], vertical_alignment="center")
    with title:
        html.draw(html.name(name, chips))
    with buttons, st.container(horizontal=True, horizontal_alignment="right", gap="small"):
        now = f"{page} {' '.join(seed.run.id if seed.run else 'none' for seed in seeds)}"
        intent: CardIntent | None = None
        if live and press_button("Stop", f"stop-{name}", now, icon=":material/stop:", disabled=word == "stopping"):
            intent = "stop"
        if not live and press_button("Run", f"run-{name}", now, icon=":material/play_arrow:", disabled=blocked):
            intent = "run"
        if press_button("Ask", f"ask-{name}", icon=ASK_ICON, help=ASK_HINT):
            intent = "ask"
        if press_button("Edit", f"edit-{name}", type="tertiary"):
            intent = "edit"
        if press_button("Search", f"search-{name}", type="tertiary",
                        help="Try many batch sizes, learning rates or other fields."):  # fmt: skip
            intent = "search"
        if press_button("Plan", f"plan-{name}", type="tertiary",
                        help="How fast would this train with more workers, and where do they stop "
                             "helping?"):  # fmt: skip
            intent = "plan"
        if press_button("Duplicate", f"duplicate-{name}", page, type="tertiary",
                        help="Opens the form of a new experiment with this config."):  # fmt: skip
            intent = "duplicate"
        picked = st.menu_button("More", list(menu), key=f"more-{name}", type="tertiary", icon=":material/more_horiz:")
    return menu[picked] if picked else intent


def _card_summary(line: ExperimentSummary, repeats: int) -> None:
    parts = [
        f"<b>{escape(line.model_and_data)}</b>",
        *(escape(part) for part in line.parts()[1:]),
        escape(plural(repeats, "seed")),
    ]
    remark = f'<div class="sb-remark">{escape(line.remark)}</div>' if line.remark else ""
    html.draw(f'<div class="sb-summary">{" · ".join(parts)}</div>{remark}')


def results(seeds: Sequence[SeedView], most: int | None = None) -> str:
    """The HTML of a table with a row for each seed that has a run, at most `most`, those first that failed or run; and
    the mean over all."""
    metrics_by_seed = [seed.run.metrics for seed in seeds if seed.run]
    last = "final" if all(seed.run.ended for seed in seeds if seed.run) else "latest"
    metric = names.main_metric(key for metrics in metrics_by_seed for key in metrics)
    stale = any(names.STALENESS_MEAN in metrics for metrics in metrics_by_seed)
    head = ["Run", "State", *([f"best {metric}", last] if metric else []), *(["staleness"] if stale else [])]
    simulated = all(seed.run.is_simulated for seed in seeds if seed.run)
    head += ["updates", "updates/virtual s" if simulated else "updates/s", "time"]
    first = seeds if most is None else sorted(seeds, key=lambda seed: _ATTENTION.get(seed.state, 2))[:most]
    rows = [_seed_row(seed, metric, stale) for seed in first]
    rows += _mean_rows(
        [seed.run for seed in seeds if seed.run and not seed.stale and seed.state == "finished"], metric, stale
    )
    return html.table(head, rows, numeric=range(2, len(head)))


def _mean_rows(runs: Sequence[RunView], metric: str | None, stale: bool) -> list[list[html.Cell]]:
    """One row with the means of `runs`, ± half of their 95 % intervals; none with fewer than two runs."""
    if len(runs) < 2:
        return []

    def over(name: str) -> html.Cell:
        across_seeds = estimate(run.metrics.get(name) for run in runs)
        return html.number(interval(across_seeds.mean, across_seeds.half) if across_seeds else "")

    own = [names.best(metric), names.final(metric)] if metric else []
    figures = [*own, *([names.STALENESS_MEAN] if stale else []), names.UPDATES, names.UPDATES_PER_SECOND]
    return [
        [html.text(f"mean of {len(runs)}", "dim"), html.text("± of 95 %", "dim"), *map(over, figures), html.text("")]
    ]


def _seed_row(seed: SeedView, metric: str | None, stale: bool) -> list[html.Cell]:
    assert seed.run is not None
    record = seed.run.record
    metrics = seed.run.metrics
    row = [
        html.link(f"seed {seed.seed}", RUNS.url(run=record.id)),
        html.Cell(html.chip(seed.state) + (" " + html.chip("stale") if seed.stale else "")),
    ]
    if metric:
        own = own_metrics.is_own(record.tags, metric)
        row.append(html.number(figure(metrics.get(names.best(metric))), own=own))
        row.append(html.number(figure(metrics.get(names.final(metric), metrics.get(metric))), own=own))
    if stale:
        row.append(html.number(figure(metrics.get(names.STALENESS_MEAN), 3)))
    updates = metrics.get(names.UPDATES)
    row.append(html.number(f"{updates:,.0f}" if updates is not None else ""))
    row.append(html.number(figure(metrics.get(names.UPDATES_PER_SECOND), 3)))
    row.append(html.number(duration(seed.run.seconds)))
    return row


def unread_cell(kind: str, name: str, source: str) -> None:
    """Draw a cell as it is written, while the models that it may name are being read."""
    with st.container(border=True, key=f"unread-{kind}-{name}"):
        html.draw(html.name(name, f'<span class="sb-dim">{escape(kind)}</span>'))
        code_block("\n".join(source.strip().splitlines()[1:-1]), "yaml")
