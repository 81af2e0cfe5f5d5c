"""Which runs belong to a cell, by seed, and whether they are of its config and its modules as they stand now."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scalebook.training.base import ConfigError, Workspace, code_changes, sqlite_address
from scalebook.training.experiments import Description, config_hash
from scalebook.training.notebook.cells import ExperimentCell, Notebook
from scalebook.training.notebook.notebook_changes import name_now, renamed
from scalebook.training.tracking import RunReader, RunRecord, names

MOST_RUNS: Final = 500
"""Newest runs of a cell that are looked at."""
MOST_RENAMED: Final = 50_000


@dataclass(frozen=True)
class SeedResult:
    """The run that stands for one seed of a cell: the newest of the config and of the own modules as they stand.

    Where there is none, the newest of any; it is then `stale`.
    """

    seed: int
    run: RunRecord | None
    changed: str = ""
    """What has changed since, where that run is stale: `the config`, or the files of own modules, `my_lab.py`."""
    lost: bool = False
    """The run has lost workers, although the config sets their number."""

    @property
    def stale(self) -> bool:
        return bool(self.changed)

    @property
    def due(self) -> bool:
        """Whether no run has finished with config, modules and workers as they stand, and none is about to."""
        if self.run is None or self.run.outcome in ("waiting", "running"):
            return self.run is None
        return self.stale or self.lost or self.run.outcome != "finished"


def results(
    reader: RunReader,
    notebook_name: str,
    cell: ExperimentCell,
    description: Description,
    notebook: Notebook,
    seeds: Sequence[int] | None = None,
    code: code_changes.CodeNow | None = None,
) -> list[SeedResult]:
    """One result for each of the cell's seeds (or of `seeds`). `notebook_name` is the file's name, `first-steps.md`.

    A cell that was renamed in the file keeps its results: those of the same config under a name that no cell of this
    config has. `code`: the user's own modules, if they are not those of the description's folder.
    """
    experiment = cell.experiment(description)
    hash_now, fixed = config_hash(experiment), experiment.strategy.least is None
    runs = reader.runs(notebook=notebook_name, cell=cell.name, limit=MOST_RUNS)
    runs += _inherited(reader, notebook_name, cell, description, hash_now, notebook)
    by_seed, code = [], code or code_changes.CodeNow(description.folder)
    for seed in cell.seeds() if seeds is None else seeds:
        own_runs = [run for run in runs if run.tags.get(names.TAG_SEED) == str(seed)]
        seed_results = [
            SeedResult(
                seed, run, changed_since(run, hash_now, code), fixed and bool(run.tags.get(names.TAG_WORKERS_LOST))
            )
            for run in own_runs
        ]
        current = [result for result in seed_results if not result.stale]
        by_seed.append(next(iter(current or seed_results), SeedResult(seed, None)))
    return by_seed


def changed_since(run: RunRecord, hash_now: str, code: code_changes.CodeNow) -> str:
    """What has changed in the experiment since the run, in words; "" if nothing."""
    if not _is_of(run, hash_now):
        return "the config"
    return code_changes.file_list(code.changed(run.tags.get(names.TAG_MODULES, "")))


def _is_of(run: RunRecord, hash_now: str) -> bool:
    return run.tags.get(names.TAG_CONFIG_HASH) == hash_now


def _inherited(
    reader: RunReader,
    notebook_name: str,
    cell: ExperimentCell,
    description: Description,
    hash_now: str,
    notebook: Notebook,
) -> list[RunRecord]:
    """Runs of this config under a name that no cell of this config has. Each goes to one cell only: where several have
    this config, to the one that was renamed, if the notebook's history has that; else to the first one without runs."""
    runs = reader.runs(notebook=notebook_name, config_hash=hash_now, limit=MOST_RUNS)
    if all(run.cell == cell.name for run in runs):
        return []
    alike = [one.name for one in notebook.experiments() if config_hash(one.experiment(description)) == hash_now]
    cells = {getattr(one, "name", "") for one in notebook.cells} - {one.name for one in notebook.experiments()}
    left = [run for run in runs if run.cell not in (*alike, *cells) and names.TAG_PARENT not in run.tags]
    owners = {run.cell for run in runs}
    first = next((name for name in alike if name not in owners), alike[0])
    heirs = dict.fromkeys((run.cell or "" for run in left), first)
    if len(alike) > 1:
        path = Path(description.folder) / notebook_name
        heirs = {was: now if (now := name_now(path, notebook, was)) in alike else first for was in heirs}
    return [run for run in left if heirs[run.cell or ""] == cell.name]


def follow_renames(
    workspace: Workspace, reader: RunReader, notebook_name: str, before: Notebook, after: Notebook
) -> None:
    """Give the runs of experiments that were renamed from one state of a notebook to the next their new names. Those of
    this workspace: a shared store may have runs of other notebooks with the same name. ConfigError where MLflow
    fails; they are then found by their config."""
    from mlflow.exceptions import MlflowException

    is_own = reader.tracking_uri == sqlite_address(workspace.database)
    for was, now in renamed(before, after).items():
        try:
            for run in reader.runs(notebook=notebook_name, cell=was, limit=MOST_RENAMED):
                if is_own or (workspace.jobs / run.id).exists():
                    reader.client.set_tag(run.id, names.TAG_CELL, now)
        except MlflowException as error:
            what = f"refused to rename the runs of {was} ({error.message[:200]})"
            raise ConfigError(
                "MLflow", what, "The notebook is saved. The runs can still be found by their configs."
            ) from error
