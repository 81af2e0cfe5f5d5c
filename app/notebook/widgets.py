"""Parts of the notebook's page: its first row, and the card of an experiment."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

import streamlit as st

from scalebook.app.navigation import RUNS
from scalebook.app.runs.data import RunView, SeedView, experiment_state
from scalebook.app.runs.widgets import progress_bar
from scalebook.app.shared import html
from scalebook.app.shared.notebooks import NotebookChoice
from scalebook.app.shared.widgets import CELL_PLACES, CellIntent, confirmed_anyway, press_button, show_problems
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
    "Do more workers help? What do other ways of updating cost? Which batch size and learning rate? Is A better than B?"
)
WHOLE: dict[str, HeadIntent] = {"Rename": "rename", "Duplicate": "duplicate", "Delete": "delete"}
OWN_MODEL: dict[str, HeadIntent] = {"Use my own model": "own model"}
DELETED: dict[str, HeadIntent] = {"Deleted notebooks": "deleted"}


@dataclass(frozen=True)
class NotebookHead:
    """What the first row of the page asks for: the picked notebook, and the clicked button."""

    picked: str | None
    intent: HeadIntent | None


def notebook_head(
    choices: Sequence[NotebookChoice],
    chosen: NotebookChoice | None,
    undo: str | None,
    export: Callable[[], str] | None = None,
    *,
    whole: bool = False,
    deleted: bool = False,
) -> NotebookHead:
    """Draw the first row: picker, Undo, History, Export, a menu, New notebook, Ask, New experiment; in an empty folder
    the menu alone.

    `undo` is the stamp of the state that Undo starts from, None without an earlier state. `export` makes the HTML when
    Export is clicked; None if the notebook cannot be read. `whole`: the notebook can be renamed, duplicated and
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
        if chosen and export is not None:
            st.download_button(
                "Export", export, f"{chosen.name}.html", "text/html", key="notebook-export", on_click="ignore",
                icon=":material/download:", type="tertiary",
                help="One HTML file with text, configs, results and charts. Opens anywhere, prints well.",
            )  # fmt: skip
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


CardIntent = (
    Literal["run", "stop", "ask", "edit", "search", "plan", "duplicate", "delete", "comparison", "simulate"]
    | CellIntent
)
MORE_WORKERS: dict[str, CardIntent] = {"Try more workers than I have": "simulate"}
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
    for seed in with_runs:
        if seed.run is not None and not seed.run.ended:
            progress_bar(seed.run, f"seed {seed.seed}: " if len(with_runs) > 1 else "")
    if with_runs:
        html.draw(results(with_runs))
    for seed in with_runs:
        if seed.run is not None and seed.run.state == "failed" and not seed.stale:
            st.error(
                f"**Seed {seed.seed}: {seed.run.failure}.** {sentence(seed.run.cause)} {seed.run.advice}",
                icon=":material/error:",
            )
    records = [seed.run.record for seed in with_runs if seed.run and not seed.stale]
    for words in (shared_numbers(records), lost_workers(records)):
        if words:
            st.warning(sentence(words), icon=":material/warning:")
    return intent


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
                        help="How fast would it train with more workers, and where do they stop helping?"):  # fmt: skip
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


def results(seeds: Sequence[SeedView]) -> str:
    """The HTML of a table with a row for each seed that has a run."""
    metrics_by_seed = [seed.run.metrics for seed in seeds if seed.run]
    last = "final" if all(seed.run.ended for seed in seeds if seed.run) else "latest"
    metric = names.main_metric(key for metrics in metrics_by_seed for key in metrics)
    stale = any(names.STALENESS_MEAN in metrics for metrics in metrics_by_seed)
    head = ["Run", "State", *([f"best {metric}", last] if metric else []), *(["staleness"] if stale else [])]
    simulated = all(seed.run.is_simulated for seed in seeds if seed.run)
    head += ["updates", "updates/virtual s" if simulated else "updates/s", "time"]
    rows = [_seed_row(seed, metric, stale) for seed in seeds]
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
