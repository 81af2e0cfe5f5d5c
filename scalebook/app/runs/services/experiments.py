"""Running and ending experiments: what the buttons do. Runs belong to the supervisor from here on."""

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from scalebook.app.runs.services import runs
from scalebook.app.runs.services.runs import Reasons, RunView
from scalebook.app.shared import form, notebooks
from scalebook.app.shared.drafts import SavedDraft
from scalebook.training.config.description import Description
from scalebook.training.jobs import queue
from scalebook.training.notebook.cells import ExperimentCell
from scalebook.training.notebook.results import results
from scalebook.training.notebook.store import Stored
from scalebook.training.tracking.reading import RunReader
from scalebook.training.workspace import Workspace

SIMULATED_WORKERS = 16
LIVE = ("running", "waiting", "stopping")


@dataclass(frozen=True)
class SeedView:
    """The newest run with this seed, if any; `changed` as in SeedResult: what of the cell has changed since."""

    seed: int
    run: RunView | None
    changed: str = ""

    @property
    def stale(self) -> bool:
        return bool(self.changed)

    @property
    def state(self) -> str:
        return self.run.state if self.run else "new"


def seeds(
    workspace: Workspace,
    reader: RunReader,
    stored: Stored,
    cell: ExperimentCell,
    description: Description,
    reasons: Reasons,
) -> list[SeedView]:
    """State and results of a cell of the notebook `stored`, by seed."""
    return [
        SeedView(result.seed, runs.view(workspace, result.run, reasons) if result.run else None, result.changed)
        for result in results(reader, stored.path.name, cell, description, notebook=stored.notebook)
    ]


def state(seeds: Iterable[SeedView]) -> str:
    """One word for the cell: what needs attention first."""
    states = {seed.state for seed in seeds}
    order = ("running", "stopping", "waiting", "failed", "stopped", "finished", "new")
    return next((word for word in order if word in states), "new")


def stale(seeds: Iterable[SeedView]) -> list[int]:
    """The seeds that have not finished with the config as it stands, and are not about to."""
    return [seed.seed for seed in seeds if seed.state not in LIVE and (seed.stale or seed.state != "finished")]


def stop(seeds: Iterable[SeedView]) -> int:
    """Ask all that have not ended to end; returns how many."""
    asked = [seed.run.job for seed in seeds if seed.run and seed.run.job and not seed.run.ended]
    for job in asked:
        queue.stop(job)
    return len(asked)


def copy_of(workspace: Workspace, view: RunView) -> SavedDraft:
    """A new experiment with the config of a run: as its cell says, or as it ran where the cell is gone."""
    record = view.record
    stem = Path(record.notebook or "").stem
    path = workspace.root / f"{stem}.md"
    cell = notebooks.read(path).notebook.experiment(record.cell or "") if path.is_file() else None
    if cell is not None:
        return plain_copy(stem, cell)
    assert view.job is not None, "only runs of this workspace can be duplicated"
    return SavedDraft(stem, "", "", 1, view.job.content())


def plain_copy(notebook: str, cell: ExperimentCell) -> SavedDraft:
    """A new experiment of `notebook` with the config of `cell`; its name follows its strategy and workers."""
    return SavedDraft(notebook, "", "", cell.repeats, cell.config)


def simulated_copy(notebook: str, cell: ExperimentCell, workers: int) -> SavedDraft:
    """A new experiment of `notebook`, with more virtual workers than the `workers` that the cell has."""
    config = copy.deepcopy(cell.config)
    strategy = form.get(config, "trainer.strategy")
    if not isinstance(strategy, dict):  # written as its bare name
        form.put(config, "trainer.strategy", {"class_path": strategy})
    form.make_simulated(config, max(SIMULATED_WORKERS, 4 * workers))
    return SavedDraft(notebook, "", "", cell.repeats, config)
