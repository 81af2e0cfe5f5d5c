"""The cells of a notebook: drawing each by its kind, the experiments' cards, running all, adding cells."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, NoReturn

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.ask import data as questions
from scalebook.app.ask.cells import ask_question, show_answer
from scalebook.app.compare import data as comparisons
from scalebook.app.compare.cells import ask_claim, ask_comparison, recorded_runs, show_claim, show_comparison, show_left
from scalebook.app.navigation import COMPOSE, PLAN, SEARCH
from scalebook.app.notebook import widgets
from scalebook.app.runs import data as runs
from scalebook.app.runs.data import LIVE, SeedView, plain_copy, simulated_copy
from scalebook.app.runs.remarks import offer_direction
from scalebook.app.search import data as searches
from scalebook.app.search.cells import show_search
from scalebook.app.shared import dialogs, drafts, notes
from scalebook.app.shared.dialogs import write
from scalebook.app.shared.widgets import press_button
from scalebook.app.shared.words import plural, summary
from scalebook.training.base import ConfigError
from scalebook.training.experiments import AsyncPSSettings, data_path_problems, validate
from scalebook.training.jobs import gpu_problems, job_requests, machines_of, this_machine
from scalebook.training.notebook import (
    AnswerCell,
    BrokenCell,
    Cell,
    ClaimCell,
    ComparisonCell,
    ExperimentCell,
    Note,
    SearchCell,
    Stored,
    edit,
)
from scalebook.training.notebook.claims import claim_tags
from scalebook.training.search import search_requests
from scalebook.training.tracking import RunReader

EVERY_S = 1.0


def show_experiment(stored: Stored, index: int, cell: ExperimentCell, reader: RunReader) -> list[SeedView]:
    """Draw the card of an experiment; returns its runs by seed. Redraws every second while a run waits or runs, and
    reruns the page when the last one ends. `reader` serves this drawing of the page alone."""
    seeds = _seeds(stored, cell, reader)
    live = runs.experiment_state(seeds) in LIVE
    with st.container(border=True, key=f"cell-experiment-{cell.name}"):
        st.fragment(_card, run_every=EVERY_S if live else None)(stored, index, cell, [seeds], live)
    return seeds


def _seeds(stored: Stored, cell: ExperimentCell, reader: RunReader | None = None) -> list[SeedView]:
    """The experiment's runs by seed, read from the store or from `reader`."""
    workspace, reader = resources.workspace(), reader or resources.notebook_runs(stored.path.name)
    return runs.seeds(workspace, reader, stored, cell, resources.description(), resources.waiting_reasons)


def _card(stored: Stored, index: int, cell: ExperimentCell, read: list[list[SeedView]], was_live: bool) -> None:
    """`read`: the runs by seed as the page has just read them. It is emptied: a later drawing of the card alone reads
    them again."""
    seeds = read.pop() if read else _seeds(stored, cell)
    if was_live and runs.experiment_state(seeds) not in LIVE:
        st.rerun()  # the page stops looking every second, and comparisons take the result in
    description = resources.description()
    experiment = cell.experiment(description)
    lacking = gpu_problems(experiment, machines_of(resources.workspace()))
    problems = [problem for problem in [*validate(experiment), *lacking] if problem.severity == "error"]
    line = summary(experiment, cell.remark)
    live = runs.experiment_state(seeds) in LIVE
    crowd = "" if problems or live else experiment.crowd_words(len(this_machine().cores))
    strategy = experiment.strategy
    real_server = isinstance(strategy, AsyncPSSettings) and not strategy.is_simulated and not problems
    notices = [*problems, *data_path_problems(experiment)]
    intent = widgets.experiment_card(cell.name, cell.repeats, line, seeds, notices, stored.stamp, crowd, real_server)
    offer_direction([seed.run for seed in seeds if seed.run is not None], f"better-{cell.name}")
    clicked = f"{intent}-{cell.name}"
    if intent == "run":
        state.clicks().mark_handled(clicked, done=_run_one(stored, cell))
    elif intent == "stop":
        stopped = runs.stop_seeds(seeds)
        state.clicks().mark_handled(clicked)
        state.show_message(f"Asked {plural(stopped, 'run')} to stop.", ":material/stop:")
    elif intent in ("edit", "search", "plan", "duplicate", "simulate"):
        state.clicks().mark_handled(clicked)
        _leave(intent, stored.path.stem, cell, strategy.workers)
    elif intent == "delete":
        dialogs.confirm_delete(
            stored, index, "experiment", cell.name, "Its runs are kept in MLflow and on the Runs page."
        )
    elif intent == "ask":
        state.clicks().mark_handled(clicked, done=False)
        ask_question(stored, cell.name)
    elif intent == "comparison":
        ask_comparison([comparisons.new_comparison(stored, description, [cell.name], index + 1, recorded_runs(stored))])
    elif intent is not None:
        notes.place(intent, stored, index)
        state.clicks().mark_handled(clicked)
    if intent is not None:
        st.rerun()


def _leave(intent: str, notebook: str, cell: ExperimentCell, workers: int) -> None:
    """Go to the page that edits the cell, searches over it, plans for it, or composes a copy of it."""
    if intent == "edit":
        st.switch_page(COMPOSE.script, query_params={"notebook": notebook, "cell": cell.name})
    elif intent == "search":
        st.switch_page(SEARCH.script, query_params={"notebook": notebook, "experiment": cell.name})
    elif intent == "plan":
        st.switch_page(PLAN.script, query_params=PLAN.cell(notebook, cell.name))
    draft = simulated_copy(notebook, cell, workers) if intent == "simulate" else plain_copy(notebook, cell)
    drafts.save(resources.workspace(), draft)
    st.switch_page(COMPOSE.script, query_params={"notebook": notebook})


def _run_one(stored: Stored, cell: ExperimentCell) -> bool:
    """Submit the cell's runs, unless they are active already, by another click or in another tab; False on an error."""
    if runs.experiment_state(_seeds(stored, cell)) in LIVE:
        state.show_message(f"{cell.name} is already queued or running.", ":material/info:")
        return True
    try:
        jobs = job_requests.submit(
            resources.workspace(),
            cell.experiment(resources.description()),
            seeds=cell.seeds(),
            notebook=stored.path.name,
            cell=cell.name,
            recorded=claim_tags(stored.notebook, cell.name, resources.description()),
        )
    except ConfigError as error:
        state.show_message(str(error), ":material/error:")
        return False
    state.show_message(f"Submitted {plural(len(jobs), 'run')} of {cell.name}.", ":material/play_arrow:")
    return True


ALL, STALE, STOP = "run-all", "run-stale", "stop-all"


@dataclass
class CellStates:
    """The state of a notebook's cells, as the page shows them. `reader` serves this drawing of the page alone."""

    reader: RunReader
    seeds: dict[str, list[SeedView]] = field(default_factory=dict)
    """Runs by seed of each experiment, by the experiment's name."""
    searching: list[str] = field(default_factory=list)
    """Names of the search cells whose search is active."""
    answering: list[str] = field(default_factory=list)
    """Names of the answer cells that a process works on."""


def show_run_all(stored: Stored, standing: CellStates) -> None:
    """Draw the buttons for the whole notebook: run all experiments, run the stale seeds, stop everything."""
    by_cell = standing.seeds
    if not by_cell:
        return
    ids = (seed.run.id if seed.run else "none" for seeds in by_cell.values() for seed in seeds)
    now = " ".join([stored.stamp, *ids, *standing.searching, *standing.answering])
    idle = [name for name, seeds in by_cell.items() if runs.experiment_state(seeds) not in LIVE]
    stale = [name for name in idle if runs.stale_seeds(by_cell[name])]
    rests = len(idle) == len(by_cell) and not standing.searching and not standing.answering
    with st.container(horizontal=True, key="all-runs", gap="small"):
        every = press_button(
            "Run all", ALL, now, icon=":material/play_arrow:", type="tertiary", disabled=not idle,
            help="Runs every experiment that is not already running, with all its seeds.",
        )  # fmt: skip
        old = press_button(
            "Run outdated and new", STALE, now, icon=":material/update:", type="tertiary", disabled=not stale,
            help="Runs only the seeds that have not finished with the current config and modules.",
        )  # fmt: skip
        stop = press_button(
            "Stop all", STOP, now, icon=":material/stop:", type="tertiary", disabled=rests,
            help="Stops everything that is queued or running in this notebook, including searches and questions.",
        )  # fmt: skip
    if stop:
        _stop(stored)
    elif old or every:
        submitted = _run(stored, by_cell, only_stale=old)
        state.clicks().mark_handled(STALE if old else ALL, done=bool(submitted))
        st.rerun()


def _run_new(stored: Stored, experiments: Collection[str]) -> NoReturn:
    """Submit the seeds of these experiments that have not finished, and draw the page again."""
    _run(stored, experiments, only_stale=True)
    st.rerun()


def _run(stored: Stored, experiments: Collection[str], only_stale: bool) -> int:
    """Submit the runs of these experiments; returns their number. A message names those that cannot start; the others
    run."""
    submitted, refusals = 0, []
    for cell in stored.notebook.experiments():
        if cell.name not in experiments:
            continue
        try:
            submitted += _submit(stored, cell, only_stale)
        except ConfigError as error:
            refusals.append(f"{cell.name} did not start: {error}")
    words = [f"Submitted {plural(submitted, 'run')}.", *refusals]
    state.show_message("  \n".join(words), ":material/error:" if refusals else ":material/play_arrow:")
    return submitted


def _submit(stored: Stored, cell: ExperimentCell, only_stale: bool) -> int:
    """Submit an experiment's runs; returns their number, 0 while some are active. ConfigError, too, if the experiment
    needs a confirmation in its cell."""
    workspace, description = resources.workspace(), resources.description()
    views = _seeds(stored, cell)
    seeds = runs.stale_seeds(views) if only_stale else [seed.seed for seed in views]
    if runs.experiment_state(views) in LIVE or not seeds:
        return 0
    experiment = cell.experiment(description)
    if crowd := experiment.crowd_words(len(this_machine().cores)):
        raise ConfigError("trainer.devices", crowd, "Confirm the experiment in its cell, and then run it there.")
    jobs = job_requests.submit(
        workspace,
        experiment,
        seeds=seeds,
        notebook=stored.path.name,
        cell=cell.name,
        recorded=claim_tags(stored.notebook, cell.name, description),
    )
    return len(jobs)


def _stop(stored: Stored) -> None:
    going_on = questions.works(resources.workspace(), stored)
    for folder in going_on:  # first: each would start what comes next
        folder.stop()
    stopped = sum(runs.stop_seeds(_seeds(stored, cell)) for cell in stored.notebook.experiments())
    words = [plural(stopped, "run")] if stopped else []
    going = [
        searches.of_cell(resources.workspace(), stored.path.name, cell.name) for cell in stored.notebook.searches()
    ]
    live = [search for search in going if search is not None and search.live]
    for search in live:
        search_requests.stop(search.folder)
    words += ["1 search" if len(live) == 1 else f"{len(live)} searches"] if live else []
    words += [plural(len(going_on), "question")] if going_on else []
    state.clicks().mark_handled(STOP)
    state.show_message(
        f"Asked {' and '.join(words)} to stop." if words else "Nothing is queued or running.", ":material/stop:"
    )
    st.rerun()


def show_cell(stored: Stored, index: int, cell: Cell, standing: CellStates, folded: Collection[str] = ()) -> None:
    """Draw cell `index` of the notebook with its buttons, unless it is `folded`, and add its state to `standing`. Of a
    long notebook, cards below the first cells are drawn when the browser comes near them."""
    notes.show_new(stored, index)
    is_far = len(stored.notebook.cells) > DRAWN_WHOLE and index >= DRAWN_FIRST
    if isinstance(cell, AnswerCell):
        if show_answer(stored, index, cell):
            standing.answering.append(cell.name)
    elif not isinstance(cell, Note | BrokenCell) and cell.name in folded:
        _note_state(stored, cell, standing)
    elif is_far and isinstance(cell, FAR) and cell.name not in _near():
        seeds = _seeds(stored, cell, standing.reader) if isinstance(cell, ExperimentCell) else []
        if isinstance(cell, ExperimentCell):
            standing.seeds[cell.name] = seeds
        live = runs.experiment_state(seeds) in LIVE
        st.fragment(_far_cell, run_every=EVERY_S if live else None)(stored, index, cell, standing, [seeds], live)
    elif isinstance(cell, ExperimentCell):
        standing.seeds[cell.name] = show_experiment(stored, index, cell, standing.reader)
    elif isinstance(cell, ComparisonCell):
        show_comparison(stored, index, cell, standing.reader)
    elif isinstance(cell, ClaimCell):
        show_claim(stored, index, cell, _run_new)
    elif isinstance(cell, SearchCell):
        if show_search(stored, index, cell):
            standing.searching.append(cell.name)
    elif isinstance(cell, BrokenCell):
        _broken(stored, index, cell)
    else:
        notes.show(stored, index, cell)


DRAWN_WHOLE: Final = 20
"""A notebook of so many cells is drawn at once."""
DRAWN_FIRST: Final = 8
"""Of a longer one, the cells that are."""
FAR: Final = (ExperimentCell, ComparisonCell, ClaimCell)
"""The kinds of cells that can wait. Notes are drawn at once: they are light, and people search in them."""
NEAR: Final = "cells-near"


def _near() -> list[str]:
    """The cells that the browser has come near to since it came to the page."""
    visit, names = state.recall(NEAR, (0, list[str]()))
    return names if visit == state.visits() else []


def come_near(name: str) -> None:
    """Draw the cell of this name, if there is one, from now on, however far down it stands."""
    state.remember(NEAR, (state.visits(), list(dict.fromkeys([*_near(), name]))))


def _far_cell(
    stored: Stored,
    index: int,
    cell: ExperimentCell | ComparisonCell | ClaimCell,
    standing: CellStates,
    read: list[list[SeedView]],
    was_live: bool,
) -> None:
    """Draw a cell's name, state and Show, which `nearby.js` presses when the browser comes near; afterwards the cell.
    `read`, as of `_card`."""
    is_near = cell.name in _near()
    if is_near and not was_live:
        standing.reader = resources.notebook_runs(stored.path.name)
        show_cell(stored, index, cell, standing)
        return
    seeds = read.pop() if read else _seeds(stored, cell) if isinstance(cell, ExperimentCell) else []
    now = runs.experiment_state(seeds)
    if is_near or (was_live and now not in LIVE):
        st.rerun()  # of the page: the card looks by itself every second, or nobody needs to any more
    kind = type(cell).__name__.removesuffix("Cell").lower()
    with st.container(border=True, key=f"cell-{kind}-{cell.name}"):
        widgets.far_card(cell.name, now if isinstance(cell, ExperimentCell) else "", len(seeds), kind)
        st.button("Show", key=f"show-{cell.name}", type="tertiary", on_click=come_near, args=[cell.name])


def _note_state(stored: Stored, cell: Cell, standing: CellStates) -> None:
    """Add the state of a cell to `standing` that is not drawn."""
    if isinstance(cell, ExperimentCell):
        standing.seeds[cell.name] = _seeds(stored, cell, standing.reader)
    elif isinstance(cell, SearchCell):
        search = searches.of_cell(resources.workspace(), stored.path.name, cell.name)
        if search is not None and search.live:
            standing.searching.append(cell.name)


def _broken(stored: Stored, index: int, cell: BrokenCell) -> None:
    """Draw a cell that cannot be read: the reason, and its text to edit."""
    with st.container(border=True, key=f"cell-broken-{index}"):
        subject = "it " if cell.message.startswith(("is ", "has ")) else ""
        st.error(
            f"The {cell.kind} {cell.name or 'cell'} cannot be read: {subject}{cell.message}", icon=":material/error:"
        )
        height = min(500, max(140, 24 * (cell.source.count("\n") + 2)))
        text = st.text_area("Text", cell.source, height=height, key=f"broken-{index}-{abs(hash(cell.source)) % 10**8}")
        if st.button("Save", key=f"save-broken-{index}", disabled=text == cell.source):
            text = text if text.endswith("\n") else f"{text}\n"
            write(stored, lambda notebook: edit.replace_source(notebook, index, text))
            st.rerun()


def show_adding(stored: Stored) -> None:
    """Draw what stands below the last cell: drafts of comparisons, and buttons that add a note and, if there is an
    experiment, a comparison or a claim."""
    show_left(stored)
    with st.container(horizontal=True):
        if st.button("Add a note", icon=":material/add:", type="tertiary"):
            notes.add(stored, len(stored.notebook.cells))
        if stored.notebook.experiments() and st.button(
            "Add a comparison", icon=":material/stacked_line_chart:", type="tertiary"
        ):
            ask_comparison(
                [comparisons.new_comparison(stored, resources.description(), recorded=recorded_runs(stored))]
            )
        if stored.notebook.experiments() and st.button("Add a claim", icon=":material/gavel:", type="tertiary"):
            ask_claim(stored)
