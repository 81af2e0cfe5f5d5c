"""The terms of a claim when its first run began, and the looks at it, both recorded in tags of its runs.

A run of a notebook's cell has the tag TAG_CLAIMS, the names of the claims that named its cell then, and for each of
them one tag with all its terms. Runs are found by the config that they ran, so cells and claims may move, be renamed,
or come back with an older copy of the notebook. A look is a tag of the first run of each cell that it has judged.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from scalebook.training.base import ConfigError
from scalebook.training.base.files import yaml_flow
from scalebook.training.experiments import Description, config_hash
from scalebook.training.experiments.search import identity, read_search
from scalebook.training.notebook import edit
from scalebook.training.notebook.cells import ClaimCell, Notebook, Ratio, Side
from scalebook.training.notebook.claim_body import read_claim
from scalebook.training.notebook.claims.looks import ClaimLook, JudgedCell
from scalebook.training.tracking import OLDEST_FIRST, RunReader, RunRecord, names

FIRST_RUNS: Final = 50
"""How many of a cell's runs, the oldest first, are searched for the claim."""


@dataclass(frozen=True)
class KnownCell:
    """A cell that a claim names: the hash of what it runs, and with how many seeds."""

    hash: str
    seeds: int


@dataclass(frozen=True)
class Entry:
    """A claim as one run has recorded it."""

    name: str
    says: dict[str, Any]
    """Its YAML."""
    cells: dict[str, KnownCell]
    began: float
    """When the run began, Unix time, s."""
    records_looks: bool = False
    """Whether looks were recorded when it began. Earlier versions recorded none."""


@dataclass(frozen=True)
class Lock:
    """A claim's lock, by its runs. `cell` is the claim as the first run that recorded it began, at `began`."""

    cell: ClaimCell | None = None
    began: float = 0.0
    changes: tuple[str, ...] = ()
    """The terms that have changed, as `at_most was 1.25`."""
    late: tuple[str, ...] = ()
    """Cells that had begun before the claim was written."""
    unknown: tuple[str, ...] = ()
    """Cells whose first run records no claims."""
    deleted: tuple[str, ...] = ()
    """Cells of which runs were deleted that began before those that are left."""
    more_seeds: tuple[str, ...] = ()
    """Cells that have more seeds now, as `base: 3, now 8`."""
    looks: tuple[ClaimLook, ...] = ()
    """All recorded looks, and those that runs of earlier versions must have had."""
    runs: tuple[str, ...] = ()
    """The first run of each cell that has begun, which records looks."""


@dataclass(frozen=True)
class Locks:
    """A notebook's locks: by claim, None if no run of it has begun; and the names of locked claims that were
    removed."""

    by_claim: Mapping[str, Lock | None]
    gone: tuple[str, ...] = ()


@dataclass
class RecordedClaims:
    """What the runs of one cell record of claims."""

    first: float | None = None
    silent: bool = False
    deleted: bool = False
    entries: list[Entry] = field(default_factory=list)
    looks: list[ClaimLook] = field(default_factory=list)
    run: str = ""
    """The first of them."""


def claim_tags(nb: Notebook, cell: str, description: Description) -> dict[str, str]:
    """Tags of a run of this cell, an experiment or a search: what the notebook claims of it as the run is submitted."""
    claims = [claim for claim in nb.claims() if cell in names_of(claim)]
    run_tags = {names.TAG_CLAIMS: ", ".join(claim.name for claim in claims)[: names.LONGEST_TAG]}
    for place, claim in enumerate(claims):
        cells = known_of(nb, claim, description)
        record = {"claim": claim.name, "records_looks": True, **edit.values_of(claim)}
        record["cells"] = {name: {"hash": entry.hash, "seeds": entry.seeds} for name, entry in cells.items()}
        text = json.dumps(record, ensure_ascii=False)
        if len(text) > names.LONGEST_TAG:
            remedy = "Split the claim into several claims."
            raise ConfigError(claim.name, "is a claim that is too long to be recorded with its runs", remedy)
        run_tags[f"{names.TAG_CLAIM}{place}"] = text
    return run_tags


def read(lookup: Callable[[str], RecordedClaims], nb: Notebook, description: Description) -> Locks:
    """The locks of a notebook's claims. `lookup`: `recorded_claims` for the hash of a config or search."""
    cells = known_cells(nb, description)
    recorded = {name: lookup(one.hash) for name, one in cells.items()}
    present = {claim.name for claim in nb.claims()}
    named: set[str] = set()
    by_claim: dict[str, Lock | None] = {}
    for claim in nb.claims():
        own = {name: recorded[name] for name in names_of(claim) if name in recorded}
        lock, entry = _lock(nb, claim, own, cells, present)
        its_names = {claim.name, *([entry.name] if entry is not None else [])}
        if lock is not None:
            runs = tuple(record.run for record in own.values() if record.run)
            lock = replace(
                lock, looks=_looks(its_names, [*own.values()], {cells[name].hash for name in own}), runs=runs
            )
        by_claim[claim.name] = lock
        named |= its_names
    locked = {entry.name for one in recorded.values() for entry in one.entries}
    return Locks(by_claim, tuple(sorted(locked - named)))


def known_cells(nb: Notebook, description: Description) -> dict[str, KnownCell]:
    """The experiments and searches that the claims of a notebook name, by name."""
    return {name: cell for claim in nb.claims() for name, cell in known_of(nb, claim, description).items()}


def known_of(nb: Notebook, claim: ClaimCell, description: Description) -> dict[str, KnownCell]:
    """Likewise those that one claim names."""
    return {name: cell for name in names_of(claim) if (cell := _known(nb, name, description)) is not None}


def names_of(claim: ClaimCell) -> list[str]:
    """The experiments and searches that a claim names."""
    experiments = [side for side in claim.sides if isinstance(side, str)]
    return list(dict.fromkeys([*experiments, *claim.searches]))


def _lock(
    nb: Notebook,
    claim: ClaimCell,
    recorded: Mapping[str, RecordedClaims],
    cells: Mapping[str, KnownCell],
    present: set[str],
) -> tuple[Lock | None, Entry | None]:
    begun = {name: record for name, record in recorded.items() if record.first is not None}
    deleted = tuple(name for name, record in recorded.items() if record.deleted)
    if not begun:
        return (Lock(deleted=deleted) if deleted else None), None
    unknown = tuple(name for name, record in begun.items() if record.silent)
    entries = sorted((entry for record in begun.values() for entry in record.entries), key=lambda entry: entry.began)
    match = _entry(nb, claim, entries, cells, present)
    if match is None:
        late = tuple(name for name in begun if name not in unknown)
        return Lock(late=late, unknown=unknown, deleted=deleted), None
    entry, cell = match
    late = tuple(
        name
        for name, record in begun.items()
        if name not in unknown and record.first is not None and record.first < entry.began
    )
    more = tuple(
        f"{name}: {then.seeds}, now {cells[name].seeds}"
        for name, then in entry.cells.items()
        if name in cells and then.seeds < cells[name].seeds
    )
    return Lock(cell, entry.began, _changes(cell, claim), late, unknown, deleted, more), entry


def _entry(
    nb: Notebook, claim: ClaimCell, entries: list[Entry], cells: Mapping[str, KnownCell], present: set[str]
) -> tuple[Entry, ClaimCell] | None:
    """The first that is of this claim: of its name; else of a name that no claim has any more, with what it says; else
    with the sides that it has."""
    read_ = [(entry, cell) for entry in entries if (cell := _cell(nb, entry, cells)) is not None]
    orphans = [(entry, cell) for entry, cell in read_ if entry.name not in present]
    named = ((entry, cell) for entry, cell in read_ if entry.name == claim.name)
    same = ((entry, cell) for entry, cell in orphans if not _changes(cell, claim))
    alike = ((entry, cell) for entry, cell in orphans if _sides(cell) == _sides(claim))
    return next(named, None) or next(same, None) or next(alike, None)


def _cell(nb: Notebook, entry: Entry, cells: Mapping[str, KnownCell]) -> ClaimCell | None:
    """The claim that was recorded, with the names that its cells have now; None where it cannot be read."""
    names = {*(cell.name for cell in nb.experiments()), *(cell.name for cell in nb.searches())}
    says = dict(entry.says)
    for name, then in entry.cells.items():
        now = next((other for other, current in cells.items() if current.hash == then.hash), None)
        if name not in names and now is not None:
            says = edit.cell_renamed(says, name, now)
    try:
        return read_claim("", entry.name, says)
    except ConfigError:
        return None  # recorded by a version with other keys


def _looks(claims: set[str], recorded: Sequence[RecordedClaims], cells: set[str]) -> tuple[ClaimLook, ...]:
    """The looks at a claim, known by one of its names or by its cells. Runs of versions that recorded no looks were
    judged with the seeds that they record."""
    looks = {
        look.digest: look for one in recorded for look in one.looks if look.claim in claims or {*look.cells} == cells
    }
    assumed = {
        look.digest: look
        for one in recorded
        for entry in one.entries
        if entry.name in claims and not entry.records_looks
        for look in [
            ClaimLook(entry.name, {cell.hash: JudgedCell(cell.seeds) for cell in entry.cells.values()}, entry.began)
        ]
    }
    return (*assumed.values(), *looks.values())


def _changes(then: ClaimCell, now: ClaimCell) -> tuple[str, ...]:
    changes = []
    for key, before in _terms(then).items():
        if before != _terms(now)[key]:
            changes.append(f"{key} was {_words(before)}")
    return tuple(changes)


def _words(value: Any) -> str:
    return "not there" if value in (None, "") else value if isinstance(value, str) else f"{value:g}"


def _terms(claim: ClaimCell) -> dict[str, Any]:
    """What a verdict depends on, by the key that it is written at."""
    if claim.ratios:
        return {**_sides(claim), "at_least": claim.at_least, "at_most": claim.at_most}
    goal = f" ({claim.goal})" if claim.goal else ""
    return {
        **_sides(claim), "search": claim.search, "figure": claim.figure, "metric": f"{claim.metric}{goal}",
        "target": claim.target, "at_least": claim.at_least, "at_most": claim.at_most,
    }  # fmt: skip


def _sides(claim: ClaimCell) -> dict[str, Any]:
    return {
        "runs": yaml_flow.flow([_written(side) for side in claim.runs]),
        "against": None if claim.against is None else yaml_flow.flow(_written(claim.against)),
    }


def _written(side: Side) -> Any:
    """A ratio with all that it takes from its claim."""
    if not isinstance(side, Ratio):
        return side
    metric = {side.metric: side.goal} if side.goal else side.metric
    own = {"figure": side.figure, "metric": metric, "target": side.target, "search": side.search}
    return {"of": side.of, "against": side.against, **{key: value for key, value in own.items() if value}}


def _known(nb: Notebook, name: str, description: Description) -> KnownCell | None:
    """An experiment or search of the notebook; None where there is none that can be read."""
    if (cell := nb.experiment(name)) is not None:
        return KnownCell(config_hash(cell.experiment(description)), cell.repeats)
    if (search := nb.search(name)) is None:
        return None
    try:
        spec = read_search(search.body, nb.base(search, description), description)
    except ConfigError:
        return None
    return KnownCell(identity(spec), spec.seeds)


def recorded_claims(reader: RunReader, notebook: str, hashed: str) -> RecordedClaims:
    """What the runs of a store record of claims; `notebook` is the file's name."""
    runs = reader.runs(notebook=notebook, config_hash=hashed, limit=FIRST_RUNS, order_by=OLDEST_FIRST)
    own_runs = [run for run in runs if names.TAG_PARENT not in run.tags]
    deleted_runs = reader.deleted(notebook, hashed, FIRST_RUNS)
    first = own_runs[0].started if own_runs else None
    deleted = any(run.tags.get(names.TAG_CLAIMS) and (first is None or run.started < first) for run in deleted_runs)
    silent = bool(own_runs) and names.TAG_CLAIMS not in own_runs[0].tags
    entries = [entry for run in own_runs for entry in _entries(run)]
    looks = {look.digest: look for run in [*own_runs, *deleted_runs] for look in _recorded_looks(run)}
    return RecordedClaims(first, silent, deleted, entries, [*looks.values()], own_runs[0].id if own_runs else "")


def _entries(run: RunRecord) -> list[Entry]:
    entries = []
    for key in sorted(key for key in run.tags if key.startswith(names.TAG_CLAIM)):
        try:
            record = json.loads(run.tags[key])
            cells = {name: KnownCell(**cell) for name, cell in record.pop("cells").items()}
            records_looks = record.pop("records_looks", False) is True
            entries.append(Entry(record.pop("claim"), record, cells, run.started, records_looks))
        except (ValueError, TypeError, KeyError, AttributeError):
            continue  # not of our writing
    return entries


def _recorded_looks(run: RunRecord) -> list[ClaimLook]:
    looks = []
    for key in (key for key in run.tags if key.startswith(names.TAG_LOOK)):
        try:
            record = json.loads(run.tags[key])
            cells = {hashed: JudgedCell(**cell) for hashed, cell in record.pop("cells").items()}
            looks.append(ClaimLook(cells=cells, **record))
        except (ValueError, TypeError, KeyError, AttributeError):
            continue  # not of our writing
    return looks


def as_locked(nb: Notebook, locks: Locks) -> list[ClaimCell]:
    """The claims of the notebook, each as it was locked, or as it stands where nothing has changed."""
    claims = []
    for claim in nb.claims():
        lock = locks.by_claim[claim.name]
        changed = lock is not None and lock.changes and lock.cell is not None
        claims.append(
            replace(lock.cell, name=claim.name, source=claim.source) if lock and lock.cell and changed else claim
        )
    return claims
