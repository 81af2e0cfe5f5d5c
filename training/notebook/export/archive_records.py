"""What an archive consists of: the names of its files, the records in them, and how large it may be."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from scalebook.training.notebook.cells import Notebook
from scalebook.training.notebook.claims import Judgement, claim_table
from scalebook.training.notebook.export.document import claim_headline
from scalebook.training.notebook.export.markdown_file import plain, summary_lines
from scalebook.training.search.study import State
from scalebook.training.tracking import RunRecord, names

FORM: Final = 3
"""Version of the archive's files. In form 1 no looks are recorded, and a refuted claim is "not supported". Before
form 3 there is no README.md, the manifest has no digest, and nothing is recorded of code and of what did not agree."""
MARK: Final = b"exported by Scalebook on demand; scalebook notebook verify FILE reads it"
NOTEBOOK: Final = "notebook.md"
MANIFEST: Final = "manifest.json"
README: Final = "README.md"
"""For a reader: the verdicts, and how to check them."""
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

ABOUT: Final = """# {title}

{results}

This is an archive of {name}, exported by Scalebook. `scalebook notebook verify FILE.zip` judges its claims again from
the curves, and checks that its parts agree. It runs none of the code.

- `notebook.md`: the notebook's text
- `configs/`: the config of each experiment, the body of each search
- `modules/`: the author's code
- `runs/`: one file for each run, with all its curves
- `constraints.txt`: versions of packages, for `pip install -c`
- `manifest.json`: the verdicts, and a hash of each file
"""

TAGS: Final = frozenset(
    {
        names.TAG_CELL, names.TAG_NOTEBOOK, names.TAG_CONFIG_HASH, names.TAG_MODULES, names.TAG_SEED,
        names.TAG_RANDOM_MADE, names.TAG_RANDOM_TRAINED, names.TAG_STATUS, names.TAG_FAILURE, names.TAG_WORKERS_LOST,
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
    modules: str = ""
    """The record of the user's own modules that it began with."""


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
    code: dict[str, str] = field(default_factory=dict)
    """Digest of each of the user's own files that runs record, as it was when the archive was made."""
    shortened: list[str] = field(default_factory=list)
    """Files of `modules/` in which private paths were replaced, so that their digests are others."""
    disagreed: list[str] = field(default_factory=list)
    """What did not agree when the archive was made, as the keys of `Finding`: results that runs have not written, runs
    of an earlier config."""
    digest: str = ""
    """SHA-256 of all of the above."""

    def own_digest(self) -> str:
        """What `digest` has to be."""
        content = {key: value for key, value in asdict(self).items() if key != "digest"}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


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


def _plain(name: str) -> str:
    """As the name of a file."""
    return "".join(character if character.isascii() and character.isalnum() else "-" for character in name) or "-"


def archived_verdicts(judged: Mapping[str, Judgement]) -> dict[str, ArchivedVerdict]:
    """The verdicts on the claims of a notebook, as an archive has them."""
    return {
        name: ArchivedVerdict(
            one.verdict,
            one.alone,
            one.statement,
            [claim_table.head(one), *claim_table.cells(one)],
            [*claim_table.guessed_directions(one), *claim_table.remarks(replace(one, unrecorded=""))],
            "" if one.locked is None else one.locked.verdict,
        )
        for name, one in judged.items()
    }


def readable(title: str, name: str, judged: Mapping[str, ArchivedVerdict]) -> str:
    """`README.md`: the verdicts, what the other files are, and how to check them."""
    headlines = [
        claim_headline(claim, [one.verdict, *([f"as locked: {one.locked}"] if one.locked else [])], one.statement,
                       one.table)
        for claim, one in judged.items()
    ]  # fmt: skip
    results = summary_lines(headlines, linked=False) if headlines else "This notebook has no claims."
    return ABOUT.format(title=plain(title), name=plain(name), results=results)
