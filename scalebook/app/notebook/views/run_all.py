"""All of a notebook at once: run its experiments, run what is stale, stop everything."""

from dataclasses import dataclass, field

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.runs.services import experiments
from scalebook.app.runs.services.experiments import LIVE, SeedView
from scalebook.app.search.services import searches
from scalebook.app.shared.components import press
from scalebook.app.shared.services.words import plural
from scalebook.training.config.crowding import crowd_words
from scalebook.training.config.workload import workload
from scalebook.training.errors import ConfigError
from scalebook.training.jobs.devices import this_machine
from scalebook.training.notebook.cells import ExperimentCell
from scalebook.training.notebook.store import Stored
from scalebook.training.search import launch

ALL, STALE, STOP = "run-all", "run-stale", "stop-all"


@dataclass
class Standing:
    """How the cells of a notebook stand, as the page shows them."""

    seeds: dict[str, list[SeedView]] = field(default_factory=dict)
    """Of each experiment its runs by seed."""
    searching: list[str] = field(default_factory=list)
    """The search cells whose search goes on."""


def show(stored: Stored, standing: Standing) -> None:
    """The three buttons, where the notebook has an experiment."""
    found = standing.seeds
    if not found:
        return
    ids = (one.run.id if one.run else "none" for seeds in found.values() for one in seeds)
    now = " ".join([stored.stamp, *ids, *standing.searching])
    idle = [name for name, seeds in found.items() if experiments.state(seeds) not in LIVE]
    stale = [name for name in idle if experiments.stale(found[name])]
    rests = len(idle) == len(found) and not standing.searching
    with st.container(horizontal=True, key="all-runs", gap="small"):
        every = press.button(
            "Run all", ALL, now, icon=":material/play_arrow:", type="tertiary", disabled=not idle,
            help="Every experiment of this notebook that does not run yet, with all its seeds.",
        )  # fmt: skip
        old = press.button(
            "Run what is stale", STALE, now, icon=":material/update:", type="tertiary", disabled=not stale,
            help="Only the seeds that have not finished with the config as it stands now.",
        )  # fmt: skip
        stop = press.button(
            "Stop all", STOP, now, icon=":material/stop:", type="tertiary", disabled=rests,
            help="Everything of this notebook that waits or runs, searches too.",
        )  # fmt: skip
    if stop:
        _stop(stored)
    elif old or every:
        _run(stored, only_stale=old)


def _run(stored: Stored, only_stale: bool) -> None:
    """Each experiment stands for itself: what cannot run is told of, and the others run."""
    submitted, told = 0, []
    for cell in stored.notebook.experiments():
        try:
            submitted += _submit(stored, cell, only_stale)
        except ConfigError as error:
            told.append(f"{cell.name} was not started: {error}")
    state.clicks().settle(STALE if only_stale else ALL, done=bool(submitted))
    words = [f"Submitted {plural(submitted, 'run')}.", *told]
    state.say("  \n".join(words), ":material/error:" if told else ":material/play_arrow:")
    st.rerun()


def _submit(stored: Stored, cell: ExperimentCell, only_stale: bool) -> int:
    """How many runs, none where some wait or run; ConfigError also for what has to be confirmed in its cell."""
    workspace, description = resources.workspace(), resources.description()
    found = _seeds(stored, cell)
    seeds = experiments.stale(found) if only_stale else [one.seed for one in found]
    if experiments.state(found) in LIVE or not seeds:
        return 0
    if crowd := crowd_words(workload(cell.config, description), len(this_machine().cores)):
        raise ConfigError("trainer.devices", crowd, "Confirm it in its cell, and run it there.")
    made = experiments.run(workspace, description, stored.path.name, cell.name, cell.config, cell.repeats, seeds)
    return len(made)


def _stop(stored: Stored) -> None:
    asked = sum(experiments.stop(_seeds(stored, cell)) for cell in stored.notebook.experiments())
    words = [plural(asked, "run")] if asked else []
    going = [searches.of_cell(resources.workspace(), stored.path.name, one.name) for one in stored.notebook.searches()]
    live = [one for one in going if one is not None and one.live]
    for one in live:
        launch.stop(one.folder)
    words += ["1 search" if len(live) == 1 else f"{len(live)} searches"] if live else []
    state.clicks().settle(STOP)
    state.say(f"Asked {' and '.join(words) or 'nothing'} to stop.", ":material/stop:")
    st.rerun()


def _seeds(stored: Stored, cell: ExperimentCell) -> list[SeedView]:
    """As they stand by now."""
    return experiments.seeds(
        resources.workspace(), resources.reader(), stored, cell, resources.description(), resources.waiting_reasons
    )
