"""A notebook as one file that a stranger can check: `scalebook notebook export FILE.md --archive`.

A zip file with text, configs, own modules, every curve of every run, verdicts, packages. Same store, same bytes. What
it says of folders is cleaned as an export is; users and hosts are left out.
"""

import hashlib
import io
import json
import platform
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Final

import scalebook
from scalebook.training.base import ConfigError, Workspace, source_files
from scalebook.training.base.files import yaml
from scalebook.training.experiments import Description
from scalebook.training.notebook.cells import Notebook
from scalebook.training.notebook.claims import claim_table
from scalebook.training.notebook.claims.claim_locks import known_cells
from scalebook.training.notebook.claims.evidence import EvidenceReader, RecordedSearch
from scalebook.training.notebook.claims.judging import judge_all
from scalebook.training.notebook.export.gathering import clean
from scalebook.training.notebook.read_results import results
from scalebook.training.notebook.store import Stored
from scalebook.training.search.study import State
from scalebook.training.tracking import MetricCurve, RunReader, RunRecord, names

FORM: Final = 2
"""Version of the archive's files. In form 1 no looks are recorded, and a refuted claim is \"not supported\"."""
MARK: Final = b"exported by Scalebook on demand; scalebook notebook verify FILE reads it"
NOTEBOOK: Final = "notebook.md"
MANIFEST: Final = "manifest.json"
DESCRIPTION: Final = "description.json"
SEARCHES: Final = "searches.json"
LOCKS: Final = "locks.json"
"""The claims and looks that runs have recorded: hash of the config or search -> `RecordedClaims`."""
LOCK: Final = "constraints.txt"
RUNS: Final = "runs/"
CONFIGS: Final = "configs/"
MODULES: Final = "modules/"

MOST_FILES: Final = 10_000
MOST_FILE_BYTES: Final = 2**25
MOST_BYTES: Final = 2**27
"""Most unpacked bytes, of one file and of all."""

TAGS: Final = frozenset(
    {
        names.TAG_CELL, names.TAG_NOTEBOOK, names.TAG_CONFIG_HASH, names.TAG_SEED, names.TAG_RANDOM_MADE,
        names.TAG_RANDOM_TRAINED, names.TAG_STATUS, names.TAG_FAILURE, names.TAG_WORKERS_LOST,
        names.TAG_STRATEGY, names.TAG_RULE, names.TAG_WORKERS, names.TAG_CLOCK, names.TAG_BATCH_PER_WORKER,
        names.TAG_BATCH_GLOBAL, names.TAG_LR_ASKED, names.TAG_LR_SCALED, names.TAG_MODEL, names.TAG_DATA,
        names.TAG_COMMIT, names.TAG_VERSIONS, names.TAG_DEVICES, names.TAG_MACHINE, names.TAG_TEST, names.TAG_GOALS,
        names.TAG_DIRECTIONS, names.TAG_OWN, names.TAG_PARENT, names.TAG_TRIAL, names.TAG_POINT, names.TAG_TRIAL_STATE,
    }
)  # fmt: skip
"""Tags of a run that are archived: no hosts, users, paths."""


@dataclass(frozen=True)
class ArchivedCurve:
    """As `MetricCurve`."""

    updates: list[float]
    samples: list[float]
    seconds: list[float]
    values: list[float]
    bytes: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class ArchivedRun:
    """One run, in `runs/ID.json`."""

    record: RunRecord
    curves: dict[str, ArchivedCurve]


@dataclass(frozen=True)
class ArchivedTrial:
    """The part of a `TrialRecord` that claims read."""

    number: int
    state: State
    point: dict[str, Any]
    runs: dict[str, str]
    failure: str | None = None
    cause: str = ""


@dataclass(frozen=True)
class ArchivedSearch:
    """The search of a cell, or why it could not be read."""

    identity: str = ""
    body: dict[str, Any] = field(default_factory=dict)
    trials: list[ArchivedTrial] = field(default_factory=list)
    problem: str = ""


@dataclass(frozen=True)
class ArchivedVerdict:
    """The verdict on a claim."""

    verdict: str
    alone: str
    statement: str
    table: list[list[str]]
    remarks: list[str]
    locked: str = ""
    """The verdict by the locked terms, if these have changed."""


@dataclass(frozen=True)
class Manifest:
    """`manifest.json`. `files`: SHA-256 of all others, by name."""

    form: int
    scalebook: str
    name: str
    python: str
    machines: list[str]
    """The machines on which its runs ran, in words."""
    packages: dict[str, str]
    verdicts: dict[str, ArchivedVerdict]
    files: dict[str, str]


def verdicts(evidence: EvidenceReader) -> dict[str, ArchivedVerdict]:
    """The verdicts on all claims of the notebook, as they are judged now."""
    return {
        name: ArchivedVerdict(
            judged.verdict,
            judged.alone,
            judged.statement,
            [claim_table.head(judged), *claim_table.cells(judged)],
            [*claim_table.guessed_directions(judged), *claim_table.remarks(replace(judged, unrecorded=""))],
            "" if judged.locked is None else judged.locked.verdict,
        )
        for name, judged in judge_all(evidence).items()
    }


def archive(workspace: Workspace, reader: RunReader, stored: Stored, description: Description) -> bytes:
    """The zip file of a notebook as it stands. It starts nothing, and writes only
    looks. ConfigError where it becomes too large."""
    nb, name = stored.notebook, stored.path.name
    evidence = EvidenceReader(workspace, reader, name, nb, description)
    judged = verdicts(evidence)  # before the locks are read, since it may be a new look
    searches = {
        search.name: archived for search in nb.searches() if (archived := _search(evidence, search.name)) is not None
    }
    runs = {run.id: run for run in _runs(evidence, searches.values())}
    folders = {str(workspace.root.resolve()): ".", str(Path.home()): "~"}
    files: dict[str, bytes] = {NOTEBOOK: nb.text.encode()}
    files |= {key: yaml.dump(clean(content, folders)).encode() for key, content in configs(nb, searches).items()}
    for path in source_files(workspace):
        if path.is_relative_to(workspace.root):
            files[f"{MODULES}{path.relative_to(workspace.root).as_posix()}"] = path.read_bytes()
    files[DESCRIPTION] = _json(asdict(replace(description, folder="")))
    files[SEARCHES] = _json({key: asdict(search) for key, search in searches.items()})
    cells = known_cells(nb, description).values()
    files[LOCKS] = _json({cell.hash: asdict(evidence.locked_claims(cell.hash)) for cell in cells})
    for run in runs.values():
        curves = {curve.metric: _curve(curve) for curve in reader.every_curve(run.id)}
        files[run_file(run)] = _json(asdict(ArchivedRun(_public(run), curves)))
    packages = _packages()
    files[LOCK] = constraints(packages)
    files = {key: clean(content.decode("utf-8", "replace"), folders).encode() for key, content in files.items()}
    manifest = Manifest(
        FORM,
        scalebook.__version__,
        name,
        platform.python_version(),
        machines(runs.values()),
        packages,
        judged,
        {key: hashlib.sha256(content).hexdigest() for key, content in sorted(files.items())},
    )
    files[MANIFEST] = clean(_json(asdict(manifest)).decode(), folders).encode()
    return _zipped(files)


def configs(nb: Notebook, searches: Mapping[str, ArchivedSearch]) -> dict[str, dict[str, Any]]:
    """The config of each experiment, and the body of each search, by the name of its file."""
    of_experiments = {f"{CONFIGS}{_plain(cell.name)}.yaml": dict(cell.config) for cell in nb.experiments()}
    of_searches = {
        f"{CONFIGS}search-{_plain(search.name)}.yaml": dict(
            searches[search.name].body if search.name in searches else search.body
        )
        for search in nb.searches()
    }
    return of_experiments | of_searches


def run_file(run: RunRecord) -> str:
    """The name of the run's file."""
    return f"{RUNS}{_plain(run.id)}.json"


def constraints(packages: Mapping[str, str]) -> bytes:
    """As `pip install -c` reads them."""
    return "".join(f"{package}=={version}\n" for package, version in packages.items()).encode()


def machines(runs: Iterable[RunRecord]) -> list[str]:
    """The machines on which they ran, in words."""
    return sorted({run.tags[names.TAG_MACHINE] for run in runs if names.TAG_MACHINE in run.tags})


@cache
def _packages() -> dict[str, str]:
    """Version by name, of all that is installed but Scalebook."""
    metadata = [dist.metadata for dist in distributions()]  # each is a file that is read whenever it is asked for
    packages = dict(sorted({one["Name"]: one["Version"] for one in metadata if one["Name"]}.items()))
    packages.pop("scalebook", None)
    return packages


def _zipped(files: Mapping[str, bytes]) -> bytes:
    total = sum(map(len, files.values()))
    if len(files) > MOST_FILES or total > MOST_BYTES or max(map(len, files.values())) > MOST_FILE_BYTES:
        what = f"has {len(files):,} files of {total:,} bytes, more than an archive may have"
        raise ConfigError("notebook", what, "Split it into several notebooks.")
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.comment = MARK
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type, entry.create_system, entry.external_attr = zipfile.ZIP_DEFLATED, 3, 0o100644 << 16
            packed.writestr(entry, files[name])
    return memory.getvalue()


def _search(evidence: EvidenceReader, name: str) -> ArchivedSearch | None:
    try:
        searched: RecordedSearch | None = evidence.searched(name)
        if searched is None:
            return None
        trials = [
            ArchivedTrial(
                trial.number, trial.state, trial.point, {str(seed): run for seed, run in trial.runs.items()},
                trial.failure, trial.cause,
            )
            for trial in searched.read(evidence.description).records
        ]  # fmt: skip
        return ArchivedSearch(searched.identity, dict(searched.body), trials)
    except ConfigError as error:
        return ArchivedSearch(problem=str(error))


def _runs(evidence: EvidenceReader, searches: Iterable[ArchivedSearch]) -> Iterator[RunRecord]:
    """Those that stand for the seeds of its experiments, and those of its searches' trials."""
    for cell in evidence.nb.experiments():
        for result in results(evidence.reader, evidence.notebook, cell, evidence.description, None, evidence.nb):
            if result.run is not None:
                yield result.run
    for search in searches:
        for trial in search.trials:
            for run_id in trial.runs.values():
                try:
                    yield evidence.reader.run(run_id)
                except KeyError:
                    continue  # it was deleted: claims say so


def _public(run: RunRecord) -> RunRecord:
    return replace(run, tags={key: value for key, value in run.tags.items() if key in TAGS})


def _curve(curve: MetricCurve) -> ArchivedCurve:
    return ArchivedCurve(curve.updates, curve.samples, curve.seconds, curve.values, curve.bytes)


def _plain(name: str) -> str:
    """As the name of a file."""
    return "".join(character if character.isascii() and character.isalnum() else "-" for character in name) or "-"


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()
