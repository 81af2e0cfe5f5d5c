"""Which runs belong to a cell, by seed, and whether they are of the config as it stands now."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from scalebook.training.config.description import Description
from scalebook.training.config.identity import config_hash
from scalebook.training.notebook.cells import ExperimentCell
from scalebook.training.tracking import names
from scalebook.training.tracking.reading import RunReader, RunRecord

MOST_RUNS: Final = 500
"""Newest runs of a cell that are looked at."""


@dataclass(frozen=True)
class SeedResult:
    """The run that stands for one seed of a cell: the newest of the config as it stands.

    Where there is none, the newest of any config; it is then `stale`.
    """

    seed: int
    run: RunRecord | None
    stale: bool


def results(
    reader: RunReader,
    notebook_name: str,
    cell: ExperimentCell,
    description: Description,
    seeds: Sequence[int] | None = None,
) -> list[SeedResult]:
    """One result for each of the cell's seeds (or of `seeds`). `notebook_name` is the file's name, `first-steps.md`."""
    hash_now = config_hash(cell.config, description)
    runs = reader.runs(notebook=notebook_name, cell=cell.name, limit=MOST_RUNS)
    found = []
    for seed in cell.seeds() if seeds is None else seeds:
        mine = [run for run in runs if run.tags.get(names.TAG_SEED) == str(seed)]
        current = [run for run in mine if run.tags.get(names.TAG_CONFIG_HASH) == hash_now]
        newest = next(iter(current or mine), None)
        found.append(SeedResult(seed, newest, stale=bool(mine) and not current))
    return found
