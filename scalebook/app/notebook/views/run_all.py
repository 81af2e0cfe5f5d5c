"""All of a notebook at once: run its experiments, run what is stale, stop everything."""

from dataclasses import dataclass, field

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.runs import data as runs
from scalebook.app.runs.data import LIVE, SeedView
from scalebook.app.search.services import searches
from scalebook.app.shared.widgets import press_button
from scalebook.app.shared.words import plural
from scalebook.training.claims import locks
from scalebook.training.config.crowding import crowd_words
from scalebook.training.config.workload import workload
from scalebook.training.errors import ConfigError
from scalebook.training.jobs import queue
from scalebook.training.jobs.devices import this_machine
from scalebook.training.notebook.cells import ExperimentCell
from scalebook.training.notebook.store import Stored
from scalebook.training.search import launch
from scalebook.training.tracking.reading import RunReader

ALL, STALE, STOP = "run-all", "run-stale", "stop-all"


@dataclass
class Standing:
    """How the cells of a notebook stand, as the page shows them; `reader` is for this drawing of the page alone."""

    reader: RunReader
    seeds: dict[str, list[SeedView]] = field(default_factory=dict)
    """Of each experiment its runs by seed."""
    searching: list[str] = field(default_factory=list)
    """The search cells whose search goes on."""


def show(stored: Stored, standing: Standing) -> None:
    """The three buttons, where the notebook has an experiment."""
    by_cell = standing.seeds
    if not by_cell:
        return
    ids = (seed.run.id if seed.run else "none" for seeds in by_cell.values() for seed in seeds)
    now = " ".join([stored.stamp, *ids, *standing.searching])
    idle = [name for name, seeds in by_cell.items() if runs.experiment_state(seeds) not in LIVE]
    stale = [name for name in idle if runs.stale_seeds(by_cell[name])]
    rests = len(idle) == len(by_cell) and not standing.searching
    with st.container(horizontal=True, key="all-runs", gap="small"):
        every = press_button(
            "Run all", ALL, now, icon=":material/play_arrow:", type="tertiary", disabled=not idle,
            help="Runs every experiment that is not running, with all its seeds.",
        )  # fmt: skip
        old = press_button(
            "Run outdated and new", STALE, now, icon=":material/update:", type="tertiary", disabled=not stale,
            help="Runs only the seeds that have not finished with the present config and modules.",
        )  # fmt: skip
        stop = press_button(
            "Stop all", STOP, now, icon=":material/stop:", type="tertiary", disabled=rests,
            help="Stops everything queued or running in this notebook, searches too.",
        )  # fmt: skip
    if stop:
        _stop(stored)
    elif old or every:
        _run(stored, only_stale=old)


def _run(stored: Stored, only_stale: bool) -> None:
    """Each experiment stands for itself: what cannot run is told of, and the others run."""
    submitted, refusals = 0, []
    for cell in stored.notebook.experiments():
        try:
            submitted += _submit(stored, cell, only_stale)
        except ConfigError as error:
            refusals.append(f"{cell.name} did not start: {error}")
    state.clicks().settle(STALE if only_stale else ALL, done=bool(submitted))
    words = [f"Submitted {plural(submitted, 'run')}.", *refusals]
    state.say("  \n".join(words), ":material/error:" if refusals else ":material/play_arrow:")
    st.rerun()


def _submit(stored: Stored, cell: ExperimentCell, only_stale: bool) -> int:
    """How many runs, none where some wait or run; ConfigError also for what has to be confirmed in its cell."""
    workspace, description = resources.workspace(), resources.description()
    views = _seeds(stored, cell)
    seeds = runs.stale_seeds(views) if only_stale else [seed.seed for seed in views]
    if runs.experiment_state(views) in LIVE or not seeds:
        return 0
    if crowd := crowd_words(workload(cell.config, description), len(this_machine().cores)):
        raise ConfigError("trainer.devices", crowd, "Confirm it in its cell, then run it there.")
    jobs = queue.submit(
        workspace,
        cell.config,
        seeds=seeds,
        description=description,
        notebook=stored.path.name,
        cell=cell.name,
        recorded=locks.tags(stored.notebook, cell.name, description),
    )
    return len(jobs)


def _stop(stored: Stored) -> None:
    asked = sum(runs.stop_seeds(_seeds(stored, cell)) for cell in stored.notebook.experiments())
    words = [plural(asked, "run")] if asked else []
    going = [
        searches.of_cell(resources.workspace(), stored.path.name, cell.name) for cell in stored.notebook.searches()
    ]
    live = [search for search in going if search is not None and search.live]
    for search in live:
        launch.stop(search.folder)
    words += ["1 search" if len(live) == 1 else f"{len(live)} searches"] if live else []
    state.clicks().settle(STOP)
    state.say(f"Asked {' and '.join(words) or 'nothing'} to stop.", ":material/stop:")
    st.rerun()


def _seeds(stored: Stored, cell: ExperimentCell) -> list[SeedView]:
    """As they stand by now."""
    return runs.seeds(
        resources.workspace(), resources.reader(), stored, cell, resources.description(), resources.waiting_reasons
    )
