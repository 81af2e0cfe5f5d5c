"""What an archive has twice, compared: configs, code, packages, curves and written results with each other."""

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, Final, NamedTuple

from scalebook.training.base import ConfigError, code_changes
from scalebook.training.base.files import yaml
from scalebook.training.experiments import Description, Experiment, config_hash, paths_today
from scalebook.training.experiments.search import SearchSpec, identity, read_search, resolve, summary
from scalebook.training.notebook.cells import Notebook
from scalebook.training.notebook.claims import Judgement, written_tables
from scalebook.training.notebook.claims.claim_locks import RecordedClaims, known_cells
from scalebook.training.notebook.claims.evidence import EvidenceReader
from scalebook.training.notebook.export.archive_records import (
    CONFIGS,
    DESCRIPTION,
    LOCK,
    LOCKS,
    MANIFEST,
    MODULES,
    NOTEBOOK,
    README,
    SEARCHES,
    ArchivedCurve,
    ArchivedRun,
    ArchivedSearch,
    Manifest,
    archived_verdicts,
    configs,
    constraints,
    machines,
    readable,
    run_file,
)
from scalebook.training.notebook.export.gathering import clean
from scalebook.training.tracking import RunRecord, names, run_start

NUMBER: Final = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")
PLAIN: Final = re.compile(r"[\w.+-]+")
CLOSE: Final = 1e-9
"""Relative difference of numbers that are the same."""


class Finding(NamedTuple):
    """Two parts that do not agree. `key` is the same in all versions of Scalebook. `since`: the form of archives from
    which on it is a difference; in earlier ones it may have been so from the start. `refuses`: no such archive is
    made."""

    key: str
    words: str
    since: int = 3
    refuses: bool = False


class ArchiveContent(NamedTuple):
    """The records of an archive."""

    files: Mapping[str, bytes]
    manifest: Manifest
    runs: list[tuple[str, ArchivedRun]]
    """With the names of their files."""
    description: Description
    searches: dict[str, ArchivedSearch]
    locks: dict[str, RecordedClaims]
    nb: Notebook

    @property
    def trials(self) -> dict[str, tuple[str, int]]:
        """Search and number of the trial of each run, by its id."""
        return {
            run: (name, trial.number)
            for name, search in self.searches.items()
            for trial in search.trials
            for run in trial.runs.values()
        }


def findings(content: ArchiveContent, evidence: EvidenceReader, judged: Mapping[str, Judgement]) -> list[Finding]:
    """All that does not agree."""
    disagreeing = [*_configs(content), *_lists(content), *_foreign_files(content)]
    trials = content.trials
    cells = {cell.name: config_hash(cell.experiment(content.description)) for cell in content.nb.experiments()}
    named = {cell.hash for cell in known_cells(content.nb, content.description).values()}
    for name, run in content.runs:
        disagreeing += _place(name, run.record, content.manifest, {*named, *cells.values()}, cells, trials)
        disagreeing += [*_curves(name, run), *_axes(name, run)]
    disagreeing += [*_run_configs(content, cells), *_trials(content), *_code(content), *_versions(content)]
    return [*disagreeing, *_written(content, evidence, judged), *_readable(content, judged)]


def _configs(content: ArchiveContent) -> Iterator[Finding]:
    """The files of configs, and the notebook's cells."""
    expected = configs(content.nb, content.searches)
    there = {name for name in content.files if name.startswith(CONFIGS)}
    for name in sorted(there | expected.keys()):
        words = ""
        if name not in expected or name not in there:
            words = f"{name}: {'belongs to no cell of the notebook' if name in there else 'missing'}"
        else:
            written = yaml.load(clean(yaml.dump(expected[name]), {}))
            if _meaning(yaml.load(content.files[name].decode("utf-8"))) != _meaning(written):
                words = f"{name}: differs from the notebook's cell"
        if words:
            yield Finding(f"config {name}", words, 1, refuses=True)


def _lists(content: ArchiveContent) -> Iterator[Finding]:
    """The packages and the machines, each of which is listed in two ways."""
    manifest = content.manifest
    if content.files.get(LOCK) != constraints(manifest.packages):
        yield Finding("packages", f"{LOCK}: the packages differ from those in {MANIFEST}", 1)
    if manifest.machines != (ran_on := machines(run.record for _, run in content.runs)):
        yield Finding("machines", f"machines: the archive lists {manifest.machines}, but the runs ran on {ran_on}", 1)


def _foreign_files(content: ArchiveContent) -> Iterator[Finding]:
    read = content.description
    tops = {name.partition(".")[0] for name in read.packages}
    tops |= {problem.partition(":")[0].partition(".")[0] for problem in read.problems}
    single = {NOTEBOOK, MANIFEST, README, DESCRIPTION, SEARCHES, LOCKS, LOCK}
    others = content.files.keys() - single - {name for name, _ in content.runs}
    for name in sorted(name for name in others if not name.startswith(CONFIGS)):
        top = name.removeprefix(MODULES).partition("/")[0].removesuffix(".py")
        if not name.startswith(MODULES) or top not in tops:
            yield Finding(f"file {name}", f"{name}: is not part of a module that the notebook's configs can use", 1)


def _place(
    name: str,
    record: RunRecord,
    manifest: Manifest,
    hashes: set[str],
    cells: Mapping[str, str],
    trials: Mapping[str, tuple[str, int]],
) -> Iterator[Finding]:
    """Whether a run belongs to the notebook."""
    if name != run_file(record):
        yield Finding(f"name {name}", f"{name}: contains the run {record.id[:40]}", 1)
    hashed = record.tags.get(names.TAG_CONFIG_HASH)
    if record.id in trials:
        return
    if record.notebook != manifest.name or not (hashed in hashes or record.cell in cells):
        yield Finding(f"cell {name}", f"{name}: belongs to no cell of the notebook", 1)
    elif hashed != cells.get(record.cell or "", hashed):
        yield Finding(f"earlier {name}", f"{name}: has a different config from {record.cell} in the notebook")


def _curves(name: str, run: ArchivedRun) -> Iterator[Finding]:
    """Each curve with itself, and with the last, best and final value that are recorded beside it."""
    record = run.record
    for metric, curve in sorted(run.curves.items()):
        if words := _broken(curve):
            yield Finding(f"curve {name} {metric}", f"{name}: {metric}: {words}")
        last = record.metrics.get(metric, math.nan)
        ended = curve.updates[-1:] == [record.metrics.get(names.UPDATES)]
        # else its last value may be of a moment without an update, which a curve leaves out
        if ended and not metric.startswith(names.SYSTEM) and not _on(last, curve):
            yield Finding(f"last {name} {metric}", f"{name}: {metric}: the last value, {last}, is not on the curve", 1)
        for prefix, word in ((names.best(""), "best"), (names.final(""), "final")):
            value = record.metrics.get(f"{prefix}{metric}")
            if value is not None and not _on(value, curve):
                words = f"{name}: {metric}: the {word} value, {value}, is not on the curve"
                yield Finding(f"{word} {name} {metric}", words)
        finite = [value for value in curve.values if math.isfinite(value)]
        best = record.metrics.get(names.best(metric))
        if best is not None and finite and best not in (min(finite), max(finite)):
            yield Finding(
                f"extreme {name} {metric}",
                f"{name}: {metric}: a value on the curve is better than the recorded best value, {best}",
            )
    for metric in sorted(record.metrics):
        plain = metric.removeprefix(names.best("")).removeprefix(names.final(""))
        if plain != metric and plain not in run.curves:
            yield Finding(f"no curve {name} {plain}", f"{name}: {plain}: has no curve")


def _axes(name: str, run: ArchivedRun) -> Iterator[Finding]:
    """The axes of all curves of a run: after as many updates there are as many samples, and at the end what is recorded
    of the whole run."""
    samples: dict[float, float] = {}
    metrics = run.record.metrics
    for metric, curve in sorted(run.curves.items()):
        for updates, seen in zip(curve.updates, curve.samples, strict=False):
            if samples.setdefault(updates, seen) != seen:
                words = (
                    f"{name}: {metric}: {seen:g} samples after {updates:g} updates, but another curve has "
                    f"{samples[updates]:g}"
                )
                yield Finding(f"samples {name} {metric}", words)
                break
        axes = ((names.UPDATES, curve.updates), (names.SAMPLES, curve.samples), (names.SECONDS, curve.seconds))
        for axis, values in axes:
            if values and values[-1] > metrics.get(axis, math.inf) * (1 + CLOSE):
                words = (
                    f"{name}: {metric}: the curve continues beyond the run's last value of {axis}, {metrics[axis]:g}"
                )
                yield Finding(f"end {name} {metric} {axis}", words)


def _broken(curve: ArchivedCurve) -> str:
    """What is wrong with a curve by itself, in words."""
    axes = [curve.updates, curve.samples, curve.seconds]
    if any(len(axis) != len(curve.values) for axis in axes) or len(curve.bytes) not in (0, len(curve.values)):
        return "the axes and the values of the curve have different lengths"
    if any(before > after for axis in (*axes, curve.bytes) for before, after in pairwise(axis)):
        return "an axis of the curve decreases"
    return ""


def _on(value: float, curve: ArchivedCurve) -> bool:
    return any(value == other or (math.isnan(value) and math.isnan(other)) for other in curve.values)


def _run_configs(content: ArchiveContent, cells: Mapping[str, str]) -> Iterator[Finding]:
    """What runs record of their config, and the cell or the trial that has this config."""
    of_cells = {cells[cell.name]: cell.experiment(content.description) for cell in content.nb.experiments()}
    of_trials = _experiments_of_trials(content)
    trials = content.trials
    for name, run in content.runs:
        record = run.record
        tags, params = record.tags, record.params
        seed = tags.get(names.TAG_SEED)
        if seed is not None and params.get("seed_everything", seed) != seed:
            yield Finding(
                f"seed {name}",
                f"{name}: has seed {seed}, but the config of the run has seed {params['seed_everything']}",
            )
        trial = trials.get(record.id)
        hashed = tags.get(names.TAG_CONFIG_HASH, "")
        experiment = of_cells.get(hashed) if trial is None else of_trials.get(trial)
        if experiment is None:
            continue
        where = f"trial {trial[1]} of {trial[0]}" if trial else record.cell or "the cell"
        expected = {key: str(value) for key, value in experiment.tags().items() if isinstance(value, int | float)}
        pairs = [(key, value, tags.get(key)) for key, value in expected.items()]
        written = {**run_start.flat(experiment.written), **run_start.flat(experiment.params())}
        pairs += [(key, value, params.get(key)) for key, value in written.items() if key != "seed_everything"]
        for key, value, there in pairs:
            if there is not None and not _same(value, there):
                words = f"{name}: has {key} {there[:100]}, but {where} has {value[:100]}"
                yield Finding(f"run {name} {key}", words)


def _experiments_of_trials(content: ArchiveContent) -> dict[tuple[str, int], Experiment]:
    """The config of each trial, by search and number."""
    by_trial: dict[tuple[str, int], Experiment] = {}
    for name, search in content.searches.items():
        with suppress(ConfigError):  # a search that cannot be read, which claims say, and points that have no config
            spec = read_search(search.body, None, content.description)
            for trial in search.trials:
                by_trial[name, trial.number] = resolve(spec, trial.point)
    return by_trial


def _same(expected: str, there: str) -> bool:
    """Whether two texts of a config mean the same."""
    if expected == there or paths_today(expected) == paths_today(there):
        return True
    try:
        return math.isclose(float(expected), float(there), rel_tol=CLOSE)
    except ValueError:
        # a class may have a short name; what has spaces or brackets is words, a list, or was cut
        plain = all(PLAIN.fullmatch(text) for text in (expected, there))
        return not plain or there.endswith(f".{expected}") or {expected, there} <= {"null", "none", "unknown"}


def _trials(content: ArchiveContent) -> Iterator[Finding]:
    """The trials of searches, and what their runs record of them."""
    records = {run.record.id: run.record for _, run in content.runs}
    for name, search in content.searches.items():
        spec = None
        with suppress(ConfigError):
            spec = read_search(search.body, None, content.description)
        if spec is not None and identity(spec) != search.identity:
            yield Finding(f"identity {name}", f"{name}: the body does not belong to the search {search.identity}")
        if spec is not None and not _is_of_cell(content, name, spec):
            yield Finding(f"ran {name}", f"{name}: the search in the notebook differs from the search that ran")
        runs = [
            (trial, seed, records[run]) for trial in search.trials for seed, run in trial.runs.items() if run in records
        ]
        for trial, seed, record in runs:  # others were deleted
            tags = record.tags
            of = (tags.get(names.TAG_TRIAL, str(trial.number)), tags.get(names.TAG_SEED, seed))
            where = f"{name}: trial {trial.number}, seed {seed}: the run {record.id}"
            if of != (str(trial.number), seed):
                yield Finding(f"trial {name} {record.id}", f"{where} belongs to trial {of[0]}, seed {of[1]}")
            point = tags.get(names.TAG_POINT)
            if spec is not None and point is not None and not same_numbers(point, summary(spec, trial.point)):
                yield Finding(f"point {name} {record.id}", f"{where} has the point {point[:200]}")


def _is_of_cell(content: ArchiveContent, name: str, spec: SearchSpec) -> bool:
    """Whether the notebook's cell is the search that ran."""
    if (cell := content.nb.search(name)) is None:
        return False
    try:
        now = read_search(cell.body, content.nb.base(cell, content.description), content.description)
    except ConfigError:
        return False
    return (identity(now), now.trials) == (identity(spec), spec.trials)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _code(content: ArchiveContent) -> Iterator[Finding]:
    """The user's own files, and what runs and searches record of them."""
    manifest = content.manifest
    for name, digest in manifest.code.items():
        file = f"{MODULES}{name}"
        if file in content.files and file not in manifest.shortened:
            now = hashlib.sha256(content.files[file]).hexdigest()[: len(digest)]
            if digest and now != digest:
                yield Finding(f"code {name}", f"{file}: differs from the file listed in {MANIFEST}", refuses=True)
    recorded = [run.record.tags.get(names.TAG_MODULES, "") for _, run in content.runs]
    recorded += [search.modules for search in content.searches.values()]
    changed = Counter(
        name
        for record in recorded
        for name, digest in code_changes.recorded_files(record).items()
        if manifest.code.get(name) != digest
    )
    for name, count in sorted(changed.items()):
        runs = "1 run or search" if count == 1 else f"{count} runs or searches"
        yield Finding(f"ran {name} {count}", f"{MODULES}{name}: {runs} started with a different version of this file")


def _versions(content: ArchiveContent) -> Iterator[Finding]:
    """The versions that runs record, and those of the archive."""
    manifest = content.manifest
    listed = {_plain(name): version for name, version in manifest.packages.items()}
    listed |= {"python": manifest.python, "scalebook": manifest.scalebook}
    ran = Counter(
        (_plain(str(name)), str(version))
        for _, run in content.runs
        for name, version in (_json(run.record.tags.get(names.TAG_VERSIONS, "")) or {}).items()
    )
    for (name, version), count in sorted(ran.items()):
        if (now := listed.get(name)) != version:
            runs = "1 run" if count == 1 else f"{count} runs"
            words = f"{name[:100]}: {runs} used {version[:100]}, but the archive lists {now or 'none'}"
            yield Finding(f"version {name} {version}", words)


def _plain(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()


def _written(content: ArchiveContent, evidence: EvidenceReader, judged: Mapping[str, Judgement]) -> Iterator[Finding]:
    """Results in the notebook's text, and the curves. Other words of another version are no difference."""
    regions = {region.name: region for region in written_tables.regions(content.nb)}
    tables = {
        name: written_tables.Table(regions[name].text, table.runs)
        if NUMBER.findall(table.text) == NUMBER.findall(regions[name].text)
        else table
        for name, table in written_tables.tables(evidence, judged).items()
        if name in regions
    }
    for problem in written_tables.problems(content.nb, tables):
        yield Finding(problem.cell_name, f"{NOTEBOOK}: {problem.cell_name} {problem.problem.message}")


def _readable(content: ArchiveContent, judged: Mapping[str, Judgement]) -> Iterator[Finding]:
    manifest = content.manifest
    if manifest.form < 3:
        return
    expected = readable(content.nb.title, manifest.name, archived_verdicts(judged))
    there = content.files.get(README, b"").decode("utf-8", "replace")
    if there != expected and not (is_worded_otherwise(manifest) and same_numbers(there, expected)):
        yield Finding("readme", f"{README}: differs from what the curves show")


def is_worded_otherwise(manifest: Manifest) -> bool:
    """Whether another version of Scalebook has written it, in whose words it may be."""
    import scalebook
    from scalebook.training.notebook.export.archive_records import FORM

    return (manifest.form, manifest.scalebook) != (FORM, scalebook.__version__)


def same_numbers(these: str, others: str) -> bool:
    """Whether two texts have the same numbers, in the same order."""
    return NUMBER.findall(these) == NUMBER.findall(others)


def _meaning(content: Any) -> Any:
    """With classes of ours where they are today. A folder that was replaced by `~` is YAML's null."""
    if isinstance(content, Mapping):
        content = {str(key): _meaning(value) for key, value in content.items()}
    elif isinstance(content, list):
        content = [_meaning(value) for value in content]
    return "~" if content is None else paths_today(content)


def unchecked(content: ArchiveContent) -> list[str]:
    """What nobody can check by the archive, in words."""
    manifest = content.manifest
    files = [f"{MODULES}{name}" for name in manifest.code if f"{MODULES}{name}" not in content.files]
    runs = (
        "Whether the runs took place. An archive has no signature, so this check may miss a number that was changed "
        "together with everything computed from it, including hashes. Compare the fingerprint with one that the "
        "author has published, or run the configs again."
    )
    sentences = [
        runs,
        "The text of notes (except results that runs have written into them), and the choice of comparisons.",
        "Packages, except those whose version the runs record (Python, PyTorch, Lightning, MLflow, Optuna, NumPy).",
    ]
    if manifest.form < 3:
        sentences.append(
            "Whether the runs used the code in modules/. The version of Scalebook that made the archive "
            "did not record this."
        )
    if manifest.shortened:
        files_ = ", ".join(sorted(manifest.shortened)[:5])
        sentences.append(f"Code in which private paths were replaced: {files_}.")
    if files:
        sentences.append(f"Code that runs used but that is not in the archive: {', '.join(sorted(files)[:5])}.")
    return sentences


def differing(findings: Sequence[Finding], manifest: Manifest) -> tuple[list[str], list[str]]:
    """The differences; and what did not agree when the archive was made, or may not have."""
    differences, notes = list[str](), list[str]()
    for finding in findings:
        if finding.key in manifest.disagreed:
            notes.append(f"did not agree when the archive was made: {finding.words}")
        elif finding.since > manifest.form:
            notes.append(f"may not have agreed when the archive was made: {finding.words}")
        else:
            differences.append(finding.words)
    return differences, notes
