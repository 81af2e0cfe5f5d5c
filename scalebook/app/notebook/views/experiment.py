"""An experiment of a notebook, live while any of its runs is."""

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.compare import data as comparisons
from scalebook.app.compare.cells import ask_comparison, recorded
from scalebook.app.navigation import COMPOSE, PLAN, SEARCH
from scalebook.app.notebook.components import experiment_cell
from scalebook.app.runs import data as runs
from scalebook.app.runs.data import LIVE, SeedView, plain_copy, simulated_copy
from scalebook.app.runs.remarks import offer_turn
from scalebook.app.shared import dialogs, drafts, notes
from scalebook.app.shared.words import plural, summary
from scalebook.training.claims import locks
from scalebook.training.config import data_paths
from scalebook.training.config.crowding import crowd_words
from scalebook.training.config.validate import validate
from scalebook.training.config.workload import workload
from scalebook.training.errors import ConfigError
from scalebook.training.jobs import queue
from scalebook.training.jobs.devices import this_machine
from scalebook.training.jobs.gpu_problems import gpu_problems, machines_of
from scalebook.training.notebook.cells import ExperimentCell
from scalebook.training.notebook.store import Stored
from scalebook.training.tracking.reading import RunReader

EVERY_S = 1.0


def show(stored: Stored, index: int, cell: ExperimentCell, reader: RunReader) -> list[SeedView]:
    """The card; drawn every second while a run waits or runs, and once more, with the page, when the last has ended.

    Returns what it shows. `reader` is for this drawing of the page alone.
    """
    seeds = _seeds(stored, cell, reader)
    live = runs.experiment_state(seeds) in LIVE
    with st.container(border=True, key=f"cell-experiment-{cell.name}"):
        st.fragment(_card, run_every=EVERY_S if live else None)(stored, index, cell, seeds if not live else None, live)
    return seeds


def _seeds(stored: Stored, cell: ExperimentCell, reader: RunReader | None = None) -> list[SeedView]:
    """As the store has them now, or as `reader` has read them."""
    workspace, reader = resources.workspace(), reader or resources.reader()
    return runs.seeds(workspace, reader, stored, cell, resources.description(), resources.waiting_reasons)


def _card(stored: Stored, index: int, cell: ExperimentCell, seeds: list[SeedView] | None, was_live: bool) -> None:
    if seeds is None:
        seeds = _seeds(stored, cell)
    if was_live and runs.experiment_state(seeds) not in LIVE:
        st.rerun()  # the page stops looking every second, and comparisons take the result in
    description = resources.description()
    load = workload(cell.config, description)
    lacking = gpu_problems(load, machines_of(resources.workspace()))
    problems = [problem for problem in [*validate(cell.config, description), *lacking] if problem.severity == "error"]
    line = summary(cell.config, description, cell.remark)
    live = runs.experiment_state(seeds) in LIVE
    crowd = "" if problems or live else crowd_words(load, len(this_machine().cores))
    real_server = load.strategy == "AsyncPS" and not load.is_simulated and not problems
    told = [*problems, *data_paths.problems(cell.config, description)]
    intent = experiment_cell.draw(cell.name, cell.repeats, line, seeds, told, stored.stamp, crowd, real_server)
    offer_turn([seed.run for seed in seeds if seed.run is not None], f"better-{cell.name}")
    clicked = f"{intent}-{cell.name}"
    if intent == "run":
        state.clicks().settle(clicked, done=_run(stored, cell))
    elif intent == "stop":
        asked = runs.stop_seeds(seeds)
        state.clicks().settle(clicked)
        state.say(f"Asked {plural(asked, 'run')} to stop.", ":material/stop:")
    elif intent in ("edit", "search", "plan", "duplicate", "simulate"):
        state.clicks().settle(clicked)
        _leave(intent, stored.path.stem, cell, load.workers)
    elif intent == "delete":
        dialogs.confirm_delete(stored, index, "experiment", cell.name, "Its runs stay in MLflow and on the Runs page.")
    elif intent == "comparison":
        ask_comparison([comparisons.new_comparison(stored, description, [cell.name], index + 1, recorded(stored))])
    elif intent is not None:
        notes.place(intent, stored, index)
        state.clicks().settle(clicked)
    if intent is not None:
        st.rerun()


def _leave(intent: str, notebook: str, cell: ExperimentCell, workers: int) -> None:
    """To the page where the cell is edited, searched over or planned for, or where one like it begins."""
    if intent == "edit":
        st.switch_page(COMPOSE.script, query_params={"notebook": notebook, "cell": cell.name})
    elif intent == "search":
        st.switch_page(SEARCH.script, query_params={"notebook": notebook, "experiment": cell.name})
    elif intent == "plan":
        st.switch_page(PLAN.script, query_params=PLAN.cell(notebook, cell.name))
    draft = simulated_copy(notebook, cell, workers) if intent == "simulate" else plain_copy(notebook, cell)
    drafts.save(resources.workspace(), draft)
    st.switch_page(COMPOSE.script, query_params={"notebook": notebook})


def _run(stored: Stored, cell: ExperimentCell) -> bool:
    """Submit its runs, unless they are under way already, by another click or in another tab. Whether it has been."""
    if runs.experiment_state(_seeds(stored, cell)) in LIVE:
        state.say(f"{cell.name} is already queued or running.", ":material/info:")
        return True
    try:
        jobs = queue.submit(
            resources.workspace(),
            cell.config,
            seeds=cell.seeds(),
            description=resources.description(),
            notebook=stored.path.name,
            cell=cell.name,
            recorded=locks.tags(stored.notebook, cell.name, resources.description()),
        )
    except ConfigError as error:
        state.say(str(error), ":material/error:")
        return False
    state.say(f"Submitted {plural(len(jobs), 'run')} of {cell.name}.", ":material/play_arrow:")
    return True
