"""Which runs belong to a cell, by seed, and whether they are of its config and its modules as they stand now."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from scalebook.training.base import CodeNow, code_changes
from scalebook.training.experiments import Description, config_hash
from scalebook.training.notebook.cells import ExperimentCell, Notebook
from scalebook.training.tracking import RunReader, RunRecord, names

MOST_RUNS: Final = 500
"""Newest runs of a cell that are looked at."""


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
    seeds: Sequence[int] | None = None,
    notebook: Notebook | None = None,
    code: CodeNow | None = None,
) -> list[SeedResult]:
    """One result for each of the cell's seeds (or of `seeds`). `notebook_name` is the file's name, `first-steps.md`.

    With `notebook`, a renamed cell keeps its results: those of the same config under a name that no cell has. `code`:
    the user's own modules, if they are not those of the description's folder.
    """
    experiment = cell.experiment(description)
    hash_now, fixed = config_hash(experiment), experiment.strategy.least is None
    runs = reader.runs(notebook=notebook_name, cell=cell.name, limit=MOST_RUNS)
    if notebook is not None and not any(_is_of(run, hash_now) for run in runs):
        runs += _inherited(reader, notebook_name, cell, description, hash_now, notebook)
    by_seed, code = [], code or CodeNow(description.folder)
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


def changed_since(run: RunRecord, hash_now: str, code: CodeNow) -> str:
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
    """Runs of this config under a name that is no cell's any more. Of several cells that could have been called so,
    the first one that has no runs of its own has them."""
    names_now = {getattr(cell, "name", "") for cell in notebook.cells}
    runs = reader.runs(notebook=notebook_name, config_hash=hash_now, limit=MOST_RUNS)
    left = [run for run in runs if run.cell not in names_now and names.TAG_PARENT not in run.tags]
    if not left:
        return []
    owners = {run.cell for run in runs}
    cells = (other for other in notebook.experiments() if config_hash(other.experiment(description)) == hash_now)
    heirs = (other.name for other in cells)
    return left if cell.name == next((name for name in heirs if name not in owners), None) else []
