"""`scalebook notebook verify FILE`: judges the claims of an archive again from its curves, and compares whatever it has
twice (`consistency.py`).

The file may come from a stranger. Nothing in it is executed, imported or written to disk; all of it is read in memory,
within the limits of `archive_file.py`, and in bounded time.
"""

import hashlib
import json
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

from scalebook.training.base import ConfigError, Workspace, code_changes
from scalebook.training.base.files import BrokenRecord, records, safe_reading
from scalebook.training.experiments import Description
from scalebook.training.experiments.search import SearchSpec
from scalebook.training.notebook.claims.claim_locks import RecordedClaims
from scalebook.training.notebook.claims.evidence import EvidenceReader, RecordedSearch
from scalebook.training.notebook.claims.judging import judge_all
from scalebook.training.notebook.claims.looks import ClaimLook
from scalebook.training.notebook.export.archive_records import (
    DESCRIPTION,
    FORM,
    LOCKS,
    MANIFEST,
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
    archived_verdicts,
)
from scalebook.training.notebook.export.consistency import (
    ArchiveContent,
    Finding,
    differing,
    findings,
    is_worded_otherwise,
    same_numbers,
    unchecked,
)
from scalebook.training.notebook.parse import parse
from scalebook.training.search.study import TrialRecord
from scalebook.training.tracking import MetricCurve, RunReader, RunRecord, names

DEADLINE_S: Final = 120.0
NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")
"""Name of a file in it: no folder up, none hidden, none absolute."""
MOST_DIRECTORY: Final = 4 * 2**20
"""Most bytes of the list of files at its end."""
_END: Final = struct.Struct("<4s4H2LH")
REMEDY: Final = "Ask the author for the archive again."


class Verification(NamedTuple):
    """What an archive says, and what is wrong with it."""

    verdicts: dict[str, ArchivedVerdict]
    """As archived."""
    differences: list[str]
    """How its parts, or the verdicts of today's code, differ from what it says, in words; none if they do not."""
    notes: list[str]
    """What another version of Scalebook worded otherwise, with the same numbers; and what did not agree when the
    archive was made."""
    unchecked: list[str]
    """What was not checked, in sentences."""
    fingerprint: str
    """SHA-256 of the archive's manifest, which has the hashes of all its files."""


class Checked(NamedTuple):
    """What today's code says of an archive: how verdicts differ, other words with the same numbers, and parts that do
    not agree."""

    differences: list[str]
    reworded: list[str]
    findings: list[Finding]
    content: ArchiveContent


def verify(path: Path) -> Verification:
    """What the archive says, compared with its curves and with itself.

    ConfigError where the file is no archive, goes beyond a limit, or takes more than `DEADLINE_S`.
    """
    with _within(DEADLINE_S, path):
        files = unpacked(path)
        manifest: Manifest = _record(path, files, MANIFEST, Manifest)
        if not 1 <= manifest.form <= FORM:
            raise BrokenRecord(
                path,
                f"has format version {manifest.form}, but this version of Scalebook reads only versions 1 to {FORM}",
                newer=True,
            )
        _check_hashes(path, files, manifest)
        checked = check(path, files, manifest)
    differences, notes = differing(checked.findings, manifest)
    reworded = [
        f"worded differently by the version of Scalebook that wrote the archive: {words}" for words in checked.reworded
    ]
    return Verification(
        _archived(manifest),
        [*checked.differences, *differences],
        [*reworded, *notes],
        unchecked(checked.content),
        hashlib.sha256(files[MANIFEST]).hexdigest(),
    )


def check(path: Path, files: Mapping[str, bytes], manifest: Manifest) -> Checked:
    """The files of an archive with each other, and with its verdicts. ConfigError where they cannot be read."""
    try:
        content = _read(path, files, manifest)
        with tempfile.TemporaryDirectory() as folder:  # empty: what it knows is in the archive
            evidence = ArchivedEvidenceReader(Path(folder), content)
            judged = judge_all(evidence)
            disagreeing = findings(content, evidence, judged)
    except ConfigError:
        raise
    except (ValueError, LookupError, TypeError, ArithmeticError, AttributeError, RecursionError, OSError) as error:
        # records that disagree, times that no calendar has
        raise BrokenRecord(
            path, f"the records in the archive cannot be judged: {type(error).__name__}: {error}"
        ) from None
    return Checked(*_differences(_archived(manifest), archived_verdicts(judged), manifest), disagreeing, content)


def _archived(manifest: Manifest) -> dict[str, ArchivedVerdict]:
    """Its verdicts, in today's words."""
    if manifest.form > 1:
        return manifest.verdicts
    return {name: _reworded(one) for name, one in manifest.verdicts.items()}


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
        raise ConfigError(str(path), f"cannot be read: {error.strerror}", "Use the path of an archive file.") from None
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
                    raise BrokenRecord(path, f"{entry.filename} does not have the length that the archive states")
    except ConfigError:
        raise
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, struct.error, OSError, ValueError) as error:
        raise BrokenRecord(path, f"not a zip file made by Scalebook: {error}") from None
    return files


def _check_directory(path: Path, content: bytes) -> None:
    """How many files it says it has, before any list of them is made."""
    offset = content.rfind(b"PK\5\6", max(0, len(content) - 2**16 - _END.size))
    if offset < 0 or offset + _END.size > len(content):
        raise BrokenRecord(path, "not a zip file")
    _, _, _, _, count, size, _, _ = _END.unpack_from(content, offset)
    if content[offset - 20 : offset - 16] == b"PK\6\7" or count > MOST_FILES or size > MOST_DIRECTORY:
        raise BrokenRecord(path, f"the archive lists more than {MOST_FILES:,} files")


def _check_entries(path: Path, entries: Sequence[zipfile.ZipInfo]) -> None:
    seen: set[str] = set()
    for entry in entries:
        name = entry.filename
        if len(name) > 200 or not NAME.fullmatch(name):
            raise BrokenRecord(path, f"a file in the archive is called {name[:200]!r}")
        if name.casefold() in seen:
            raise BrokenRecord(path, f"{name} is in the archive twice")
        seen.add(name.casefold())
        if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG):
            raise BrokenRecord(path, f"{name} is not a regular file")
        if entry.flag_bits & 1 or entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise BrokenRecord(path, f"{name} is encrypted, or uses a compression method that Scalebook does not use")
        if entry.file_size > MOST_FILE_BYTES:
            raise BrokenRecord(
                path, f"{name} has {entry.file_size:,} bytes, but at most {MOST_FILE_BYTES:,} are allowed"
            )
    if (total := sum(entry.file_size for entry in entries)) > MOST_BYTES or len(entries) > MOST_FILES:
        raise BrokenRecord(path, f"{len(entries):,} files of {total:,} bytes are more than an archive can have")


def _check_hashes(path: Path, files: Mapping[str, bytes], manifest: Manifest) -> None:
    if manifest.form >= 3 and manifest.digest != manifest.own_digest():
        raise BrokenRecord(path, f"{MANIFEST} differs from what was archived")
    others = files.keys() - {MANIFEST}
    if odd := sorted(others ^ manifest.files.keys()):
        raise BrokenRecord(path, f"{odd[0]} is {'not listed' if odd[0] in others else 'missing'}")
    for name in sorted(others):
        if hashlib.sha256(files[name]).hexdigest() != manifest.files[name]:
            raise BrokenRecord(path, f"{name} differs from what was archived")


def _record(path: Path, files: Mapping[str, bytes], name: str, kind: Any) -> Any:
    if name not in files:
        raise BrokenRecord(path, f"{name} is missing")
    try:
        return records.parse(path / name, files[name], kind)
    except BrokenRecord as error:
        raise BrokenRecord(path, f"{name}: {error.why}") from None


def _read(path: Path, files: Mapping[str, bytes], manifest: Manifest) -> ArchiveContent:
    return ArchiveContent(
        files,
        manifest,
        [(name, _record(path, files, name, ArchivedRun)) for name in sorted(files) if name.startswith(RUNS)],
        _record(path, files, DESCRIPTION, Description),
        _record(path, files, SEARCHES, dict[str, ArchivedSearch]),
        _record(path, files, LOCKS, dict[str, RecordedClaims]) if LOCKS in files else {},
        parse(files[NOTEBOOK].decode("utf-8", "replace"), Path(manifest.name).stem),
    )


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
        assert not where, "an archive cannot be queried in SQL"
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


class ArchivedCode(code_changes.CodeNow):
    """Answers with the files that the archive records."""

    def __init__(self, code: Mapping[str, str]) -> None:
        super().__init__("")
        self._code = code

    @override
    def changed(self, record: str) -> list[str]:
        recorded = code_changes.recorded_files(record).items() if self._code else ()
        return [name for name, digest in recorded if self.digest(name) != digest]

    @override
    def digest(self, name: str) -> str:
        return self._code.get(name, "")


class ArchivedEvidenceReader(EvidenceReader):
    """Reads runs, searches and locks from the archive. `folder` is empty."""

    def __init__(self, folder: Path, content: ArchiveContent) -> None:
        manifest, reader = content.manifest, ArchivedReader([run for _, run in content.runs])
        super().__init__(Workspace(folder), reader, manifest.name, content.nb, content.description)
        self.searches, self.locks, self.code = content.searches, content.locks, ArchivedCode(manifest.code)
        self.counts_looks = manifest.form > 1

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
            raise ConfigError(name, f"could not be read when the archive was made: {archived.problem}", REMEDY)

        def trials(spec: SearchSpec) -> list[TrialRecord]:
            return [
                TrialRecord(
                    trial.number, trial.state, trial.point, failure=trial.failure, cause=trial.cause,
                    runs={int(seed): run for seed, run in trial.runs.items()},
                )
                for trial in archived.trials
            ]  # fmt: skip

        return RecordedSearch(archived.identity, archived.body, trials, archived.modules)


def _differences(
    before: Mapping[str, ArchivedVerdict], now: Mapping[str, ArchivedVerdict], manifest: Manifest
) -> tuple[list[str], list[str]]:
    """Those of the verdicts; and what another version worded otherwise. In the same version every word is the same."""
    differences, notes = list[str](), list[str]()
    for name in [*before, *(name for name in now if name not in before)]:
        if name not in now or name not in before:
            what = (
                "claimed in the notebook, but not archived"
                if name in now
                else "archived, but no cell of the notebook makes this claim"
            )
            differences.append(f"{name}: {what}")
            continue
        for what in ("verdict", "alone", "locked", "statement", "table", "remarks"):
            old, new = (getattr(said[name], what) for said in (before, now))
            if old == new:
                continue
            if what == "remarks":  # only those that differ
                old, new = [one for one in old if one not in new], [one for one in new if one not in old]
            archived, judged = (json.dumps(value, ensure_ascii=False) for value in (old, new))
            words_only = what == "remarks" or (what in ("statement", "table") and same_numbers(archived, judged))
            reworded = is_worded_otherwise(manifest) and words_only
            (notes if reworded else differences).append(f"{name}: {what}: archived {archived}, now {judged}")
    return differences, notes


@contextmanager
def _within(seconds: float, path: Path) -> Iterator[None]:
    """ConfigError in the main thread after so long, whatever it does."""

    def over(number: int, frame: FrameType | None) -> NoReturn:
        raise BrokenRecord(path, f"reading the archive takes more than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
