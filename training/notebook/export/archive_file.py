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
from dataclasses import asdict, replace
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import scalebook
from scalebook.training.base import ConfigError, Workspace, code_changes, source_files
from scalebook.training.base.files import records, yaml
from scalebook.training.experiments import Description
from scalebook.training.notebook.claims.claim_locks import known_cells
from scalebook.training.notebook.claims.evidence import EvidenceReader, RecordedSearch
from scalebook.training.notebook.claims.judging import judge_all
from scalebook.training.notebook.export.archive_records import (
    DESCRIPTION,
    FORM,
    LOCK,
    LOCKS,
    MANIFEST,
    MARK,
    MODULES,
    MOST_BYTES,
    MOST_FILE_BYTES,
    MOST_FILES,
    NOTEBOOK,
    README,
    SEARCHES,
    TAGS,
    ArchivedCurve,
    ArchivedRun,
    ArchivedSearch,
    ArchivedTrial,
    Manifest,
    archived_verdicts,
    configs,
    constraints,
    machines,
    readable,
    run_file,
)
from scalebook.training.notebook.export.gathering import clean
from scalebook.training.notebook.export.verification import check
from scalebook.training.notebook.read_results import results
from scalebook.training.notebook.store import Stored
from scalebook.training.tracking import MetricCurve, RunReader, RunRecord, names


def archive(workspace: Workspace, reader: RunReader, stored: Stored, description: Description) -> bytes:
    """The zip file of a notebook as it stands, from which its reader gets the same verdicts. It starts nothing, and
    writes only looks. ConfigError where it becomes too large, or means something else without this machine's paths."""
    nb, name = stored.notebook, stored.path.name
    folders = {str(workspace.root.resolve()): ".", str(Path.home()): "~"}
    evidence = EvidenceReader(workspace, reader, name, nb, description)
    judged = archived_verdicts(judge_all(evidence))  # before the locks are read, since it may be a new look
    searches = {
        search.name: archived for search in nb.searches() if (archived := _search(evidence, search.name)) is not None
    }
    runs = {run.id: run for run in _runs(evidence, searches.values())}
    files: dict[str, bytes] = {NOTEBOOK: nb.text.encode()}
    files |= {key: yaml.dump(clean(content, folders)).encode() for key, content in configs(nb, searches).items()}
    modules = _modules(workspace)
    files |= modules
    files[DESCRIPTION] = _json(asdict(replace(description, folder="")))
    files[SEARCHES] = _json({key: asdict(search) for key, search in searches.items()})
    cells = known_cells(nb, description).values()
    files[LOCKS] = _json({cell.hash: asdict(evidence.locked_claims(cell.hash)) for cell in cells})
    for run in runs.values():
        curves = {curve.metric: _curve(curve) for curve in reader.every_curve(run.id)}
        files[run_file(run)] = _json(asdict(ArchivedRun(_public(run), curves)))
    packages = _packages()
    files[LOCK] = constraints(packages)
    files[README] = readable(nb.title, name, judged).encode()
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
        _code(runs.values(), searches.values(), evidence.code),
        [key for key, content in modules.items() if files[key] != content],
    )
    manifest = _checked(stored.path, files, _cleaned(stored.path, manifest, folders))
    return _zipped({**files, MANIFEST: _json(asdict(replace(manifest, digest=manifest.own_digest())))})


def _checked(path: Path, files: Mapping[str, bytes], manifest: Manifest) -> Manifest:
    """With what did not agree from the start. ConfigError where its reader would get other verdicts or configs."""
    checked = check(path, files, manifest)
    others = [finding.words for finding in checked.findings if finding.refuses]
    if differences := [*checked.differences, *others]:
        remedy = "In the notebook's configs, use paths relative to the folder of the notebook."
        raise ConfigError(
            path.name, f"would mean something different without this machine's paths: {differences[0]}", remedy
        )
    return replace(manifest, disagreed=sorted({finding.key for finding in checked.findings}))


def _cleaned(path: Path, manifest: Manifest, folders: Mapping[str, str]) -> Manifest:
    return records.parse(path / MANIFEST, clean(_json(asdict(manifest)).decode(), folders).encode(), Manifest)


def _modules(workspace: Workspace) -> dict[str, bytes]:
    """The user's own files, by their names in the archive."""
    root = workspace.root
    paths = [path for path in source_files(workspace) if path.is_relative_to(root)]
    return {f"{MODULES}{path.relative_to(root).as_posix()}": path.read_bytes() for path in paths}


def _code(runs: Iterable[RunRecord], searches: Iterable[ArchivedSearch], code: code_changes.CodeNow) -> dict[str, str]:
    """The digests of the user's own files that runs and searches record, as these files are now."""
    recorded = {run.tags.get(names.TAG_MODULES, "") for run in runs} | {search.modules for search in searches}
    files = {name for record in recorded for name in code_changes.recorded_files(record)}
    return {name: code.digest(name) for name in sorted(files)}


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
        what = f"has {len(files):,} files with {total:,} bytes in total, which is more than an archive may have"
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
        return ArchivedSearch(searched.identity, dict(searched.body), trials, modules=searched.modules)
    except ConfigError as error:
        return ArchivedSearch(problem=str(error))


def _runs(evidence: EvidenceReader, searches: Iterable[ArchivedSearch]) -> Iterator[RunRecord]:
    """Those that stand for the seeds of its experiments, and those of its searches' trials."""
    for cell in evidence.nb.experiments():
        for result in results(evidence.reader, evidence.notebook, cell, evidence.description, evidence.nb):
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


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()
