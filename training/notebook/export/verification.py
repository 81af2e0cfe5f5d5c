"""`scalebook notebook verify FILE`: judges the claims of an archive again from its curves, and compares whatever it has
twice: configs with the notebook's cells, last values with curves, packages and machines with what lists them.

The file may come from a stranger. Nothing in it is executed, imported or written to disk; all of it is read in memory,
within the limits of `archive_file.py`, and in bounded time.
"""

import hashlib
import json
import math
import re
import signal
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple, NoReturn

from typing_extensions import override

import scalebook
from scalebook.training.base import ConfigError, Workspace
from scalebook.training.base.files import BrokenRecord, records, safe_reading, yaml
from scalebook.training.experiments import Description, paths_today
from scalebook.training.experiments.search import SearchSpec
from scalebook.training.notebook.cells import Notebook
from scalebook.training.notebook.claims.claim_locks import RecordedClaims, known_cells
from scalebook.training.notebook.claims.evidence import EvidenceReader, RecordedSearch
from scalebook.training.notebook.claims.looks import ClaimLook
from scalebook.training.notebook.export.archive_file import (
    CONFIGS,
    DESCRIPTION,
    FORM,
    LOCK,
    LOCKS,
    MANIFEST,
    MODULES,
    MOST_BYTES,
    MOST_FILE_BYTES,
    MOST_FILES,
    NOTEBOOK,
    RUNS,
    SEARCHES,
    ArchivedCurve,
    ArchivedRun,
    ArchivedSearch,
    ArchivedVerdict,
    Manifest,
    configs,
    constraints,
    machines,
    run_file,
    verdicts,
)
from scalebook.training.notebook.export.gathering import clean
from scalebook.training.notebook.parse import parse
from scalebook.training.search.study import TrialRecord
from scalebook.training.tracking import MetricCurve, RunReader, RunRecord, names

DEADLINE_S: Final = 120.0
NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")
"""Name of a file in it: no folder up, none hidden, none absolute."""
MOST_DIRECTORY: Final = 4 * 2**20
"""Most bytes of the list of files at its end."""
_END: Final = struct.Struct("<4s4H2LH")
NUMBER: Final = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")
REMEDY: Final = "Get the archive again from whoever made it."


class Verification(NamedTuple):
    """What an archive says, and what is wrong with it."""

    verdicts: dict[str, ArchivedVerdict]
    """As archived."""
    differences: list[str]
    """How its parts, or the verdicts of today's code, differ from what it says, in words; none if they do not."""
    notes: list[str]
    """What another version of Scalebook worded otherwise, with the same values."""


def verify(path: Path) -> Verification:
    """What the archive says, compared with its curves and with itself.

    ConfigError where the file is no archive, goes beyond a limit, or takes more than `DEADLINE_S`.
    """
    with _within(DEADLINE_S, path):
        files = unpacked(path)
        manifest = _record(path, files, MANIFEST, Manifest)
        if not 1 <= manifest.form <= FORM:
            raise BrokenRecord(
                path, f"was written in form {manifest.form}, and this Scalebook reads 1 to {FORM}", newer=True
            )
        _check_hashes(path, files, manifest)
        try:
            read = _read(path, files, manifest)
            now = _judged(read, manifest)
            contradictions = list(_contradictions(files, manifest, read))
        except ConfigError:
            raise
        except (ValueError, LookupError, TypeError, ArithmeticError, RecursionError, OSError) as error:
            # records that disagree, times that no calendar has
            raise BrokenRecord(path, f"its records cannot be judged: {type(error).__name__}: {error}") from None
    archived = (
        {name: _reworded(one) for name, one in manifest.verdicts.items()} if manifest.form == 1 else manifest.verdicts
    )
    is_same_version = (manifest.form, manifest.scalebook) == (FORM, scalebook.__version__)
    differences, notes = _differences(archived, now, is_same_version)
    return Verification(archived, [*differences, *contradictions], notes)


def _reworded(archived: ArchivedVerdict) -> ArchivedVerdict:
    """With the word that replaced "not supported"."""

    def word(text: str) -> str:
        return "refuted" if text == "not supported" else text

    table = [[word(cell) for cell in row] for row in archived.table]
    return replace(
        archived, verdict=word(archived.verdict), alone=word(archived.alone), locked=word(archived.locked), table=table
    )


def unpacked(path: Path) -> dict[str, bytes]:
    """All files of the archive, by name."""
    try:
        content = safe_reading.whole(path, MOST_BYTES)
    except OSError as error:
        raise ConfigError(str(path), f"cannot be read: {error.strerror}", "Name the file of an archive.") from None
    _check_directory(path, content)
    files: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(BytesIO(content)) as packed:
            entries = packed.infolist()
            _check_entries(path, entries)
            for entry in entries:
                with packed.open(entry) as file:
                    files[entry.filename] = file.read(entry.file_size + 1)
                if len(files[entry.filename]) != entry.file_size:
                    raise BrokenRecord(path, f"{entry.filename} is not as long as it says")
    except ConfigError:
        raise
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, struct.error, OSError, ValueError) as error:
        raise BrokenRecord(path, f"no zip file of ours: {error}") from None
    return files


def _check_directory(path: Path, content: bytes) -> None:
    """How many files it says it has, before any list of them is made."""
    offset = content.rfind(b"PK\5\6", max(0, len(content) - 2**16 - _END.size))
    if offset < 0 or offset + _END.size > len(content):
        raise BrokenRecord(path, "no zip file")
    _, _, _, _, count, size, _, _ = _END.unpack_from(content, offset)
    if content[offset - 20 : offset - 16] == b"PK\6\7" or count > MOST_FILES or size > MOST_DIRECTORY:
        raise BrokenRecord(path, f"it lists more than {MOST_FILES:,} files")


def _check_entries(path: Path, entries: Sequence[zipfile.ZipInfo]) -> None:
    seen: set[str] = set()
    for entry in entries:
        name = entry.filename
        if len(name) > 200 or not NAME.fullmatch(name):
            raise BrokenRecord(path, f"a file in it is called {name[:200]!r}")
        if name.casefold() in seen:
            raise BrokenRecord(path, f"{name} is in it twice")
        seen.add(name.casefold())
        if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG):
            raise BrokenRecord(path, f"{name} is no plain file")
        if entry.flag_bits & 1 or entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise BrokenRecord(path, f"{name} is encrypted, or packed by another method than ours")
        if entry.file_size > MOST_FILE_BYTES:
            raise BrokenRecord(path, f"{name} has {entry.file_size:,} bytes, and {MOST_FILE_BYTES:,} are the most")
    if (total := sum(entry.file_size for entry in entries)) > MOST_BYTES or len(entries) > MOST_FILES:
        raise BrokenRecord(path, f"{len(entries):,} files of {total:,} bytes are more than an archive may have")


def _check_hashes(path: Path, files: dict[str, bytes], manifest: Manifest) -> None:
    others = files.keys() - {MANIFEST}
    if odd := sorted(others ^ manifest.files.keys()):
        raise BrokenRecord(path, f"{odd[0]} is {'not listed' if odd[0] in others else 'missing'}")
    for name in sorted(others):
        if hashlib.sha256(files[name]).hexdigest() != manifest.files[name]:
            raise BrokenRecord(path, f"{name} is not what was archived")


def _record(path: Path, files: dict[str, bytes], name: str, kind: Any) -> Any:
    if name not in files:
        raise BrokenRecord(path, f"{name} is missing")
    try:
        return records.parse(path / name, files[name], kind)
    except BrokenRecord as error:
        raise BrokenRecord(path, f"{name}: {error.why}") from None


class _Content(NamedTuple):
    """The records of an archive."""

    runs: list[tuple[str, ArchivedRun]]
    """With the names of their files."""
    description: Description
    searches: dict[str, ArchivedSearch]
    locks: dict[str, RecordedClaims]
    nb: Notebook


def _read(path: Path, files: dict[str, bytes], manifest: Manifest) -> _Content:
    return _Content(
        [(name, _record(path, files, name, ArchivedRun)) for name in sorted(files) if name.startswith(RUNS)],
        _record(path, files, DESCRIPTION, Description),
        _record(path, files, SEARCHES, dict[str, ArchivedSearch]),
        _record(path, files, LOCKS, dict[str, RecordedClaims]) if LOCKS in files else {},
        parse(files[NOTEBOOK].decode("utf-8", "replace"), Path(manifest.name).stem),
    )


def _judged(read: _Content, manifest: Manifest) -> dict[str, ArchivedVerdict]:
    with tempfile.TemporaryDirectory() as folder:  # empty: what it knows is in the archive
        reader = ArchivedReader([run for _, run in read.runs])
        evidence = ArchivedEvidenceReader(Workspace(Path(folder)), reader, manifest.name, read.nb, read.description)
        evidence.searches, evidence.locks = read.searches, read.locks
        evidence.counts_looks = manifest.form > 1
        return verdicts(evidence)


def _contradictions(files: dict[str, bytes], manifest: Manifest, read: _Content) -> Iterator[str]:
    """What it says twice, and not alike; and what is in it without belonging there."""
    expected = configs(read.nb, read.searches)
    in_archive = {name for name in files if name.startswith(CONFIGS)}
    for name in sorted(in_archive | expected.keys()):
        if name not in expected or name not in in_archive:
            yield f"{name}: {'of no cell of the notebook' if name in in_archive else 'missing'}"
        elif _meaning(yaml.load(files[name].decode("utf-8"))) != _meaning(
            yaml.load(clean(yaml.dump(expected[name]), {}))
        ):
            yield f"{name}: not what the notebook has in its cell"
    if files.get(LOCK) != constraints(manifest.packages):
        yield f"{LOCK}: not the packages of {MANIFEST}"
    if manifest.machines != (ran_on := machines(run.record for _, run in read.runs)):
        yield f"machines: archived {manifest.machines}, and its runs ran on {ran_on}"
    tops = {name.partition(".")[0] for name in read.description.packages}
    tops |= {problem.partition(":")[0].partition(".")[0] for problem in read.description.problems}
    single = {NOTEBOOK, MANIFEST, DESCRIPTION, SEARCHES, LOCKS, LOCK}
    for name in sorted(files.keys() - single - in_archive - {name for name, _ in read.runs}):
        top = name.removeprefix(MODULES).partition("/")[0].removesuffix(".py")
        if not name.startswith(MODULES) or top not in tops:
            yield f"{name}: of no module that the notebook's configs can name"
    hashes = known_cells(read.nb, read.description).values()
    of_cells = {cell.hash for cell in hashes}
    trials = {run_id for search in read.searches.values() for trial in search.trials for run_id in trial.runs.values()}
    for name, run in read.runs:
        yield from _odd_run(name, run, manifest, of_cells, trials, {cell.name for cell in read.nb.experiments()})


def _odd_run(
    name: str, run: ArchivedRun, manifest: Manifest, hashes: set[str], trials: set[str], cells: set[str]
) -> Iterator[str]:
    """What is wrong with a run, whether or not a claim rests on it."""
    record = run.record
    if name != run_file(record):
        yield f"{name}: is the run {record.id[:40]}"
    if record.id not in trials and (
        record.notebook != manifest.name
        or not (record.tags.get(names.TAG_CONFIG_HASH) in hashes or record.cell in cells)
    ):
        yield f"{name}: of no cell of the notebook"
    for metric, curve in sorted(run.curves.items()):
        last = record.metrics.get(metric, math.inf)
        if metric.startswith(names.SYSTEM) or curve.updates[-1:] != [record.metrics.get(names.UPDATES)]:
            continue  # its last value may be of a moment without an update, which a curve leaves out
        if not any(value == last or (math.isnan(value) and math.isnan(last)) for value in curve.values):
            yield f"{name}: {metric}: its last value, {last}, is not on its curve"


def _meaning(content: Any) -> Any:
    """With classes of ours where they are today. A folder that was replaced by `~` is YAML's null."""
    if isinstance(content, Mapping):
        content = {str(key): _meaning(value) for key, value in content.items()}
    elif isinstance(content, list):
        content = [_meaning(value) for value in content]
    return "~" if content is None else paths_today(content)


class ArchivedReader(RunReader):
    """Answers as a store that has these runs alone."""

    def __init__(self, runs: Sequence[ArchivedRun]) -> None:
        super().__init__("")
        self._runs = {run.record.id: run for run in runs}

    def run(self, run_id: str) -> RunRecord:
        return self._runs[run_id].record

    def runs(
        self,
        *,
        notebook: str | None = None,
        cell: str | None = None,
        config_hash: str | None = None,
        where: str = "",
        limit: int = 100,
        order_by: Sequence[str] = (),
    ) -> list[RunRecord]:
        assert not where, "a store is asked in SQL"
        matching = [
            run.record
            for run in self._runs.values()
            if notebook in (None, run.record.notebook)
            and cell in (None, run.record.cell)
            and config_hash in (None, run.record.tags.get(names.TAG_CONFIG_HASH))
        ]
        return sorted(matching, key=lambda run: -run.started)[:limit]

    def curves(self, run_id: str, metrics: Sequence[str]) -> list[MetricCurve]:
        by_metric = self._runs[run_id].curves
        nothing = ArchivedCurve([], [], [], [])
        pairs = [(metric, by_metric.get(metric, nothing)) for metric in metrics]
        return [
            MetricCurve(run_id, metric, curve.updates, curve.samples, curve.seconds, curve.values, curve.bytes)
            for metric, curve in pairs
        ]


class ArchivedEvidenceReader(EvidenceReader):
    """Reads searches from the archive."""

    searches: dict[str, ArchivedSearch]
    locks: dict[str, RecordedClaims]

    def locked_claims(self, hashed: str) -> RecordedClaims:
        """The archived locks; in an archive of an earlier version, which has none, runs record nothing."""
        begun = [run.started for run in self.reader.runs(notebook=self.notebook, config_hash=hashed)]
        return self.locks.get(hashed) or RecordedClaims(min(begun, default=None), silent=bool(begun))

    @override
    def record_look(self, look: ClaimLook, runs: Sequence[str]) -> str:
        """An archive stays as it is, and has the looks up to its export."""
        return ""

    def searched(self, name: str) -> RecordedSearch | None:
        archived = self.searches.get(name)
        if archived is None:
            return None
        if archived.problem:
            raise ConfigError(name, f"could not be read when it was archived: {archived.problem}", REMEDY)

        def trials(spec: SearchSpec) -> list[TrialRecord]:
            return [
                TrialRecord(
                    trial.number, trial.state, trial.point, failure=trial.failure, cause=trial.cause,
                    runs={int(seed): run for seed, run in trial.runs.items()},
                )
                for trial in archived.trials
            ]  # fmt: skip

        return RecordedSearch(archived.identity, archived.body, trials)


def _differences(
    before: Mapping[str, ArchivedVerdict], now: Mapping[str, ArchivedVerdict], is_same_version: bool
) -> tuple[list[str], list[str]]:
    """Those of the verdicts; and what another version worded otherwise. In the same version every word is the same."""
    differences, notes = list[str](), list[str]()
    for name in [*before, *(name for name in now if name not in before)]:
        if name not in now or name not in before:
            what = "claimed, and not archived" if name in now else "archived, and claimed by no cell"
            differences.append(f"{name}: {what}")
            continue
        for what in ("verdict", "alone", "locked", "statement", "table", "remarks"):
            old, new = (json.dumps(getattr(said[name], what), ensure_ascii=False) for said in (before, now))
            same_numbers = what in ("statement", "table") and NUMBER.findall(old) == NUMBER.findall(new)
            reworded = not is_same_version and (what == "remarks" or same_numbers)
            if old != new:
                (notes if reworded else differences).append(f"{name}: {what}: archived {old}, now {new}")
    return differences, notes


@contextmanager
def _within(seconds: float, path: Path) -> Iterator[None]:
    """ConfigError in the main thread after so long, whatever it does."""

    def over(number: int, frame: FrameType | None) -> NoReturn:
        raise BrokenRecord(path, f"reading it takes more than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
