"""The only module with `st.cache_*`: what all visitors of this server share."""

import copy
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

import streamlit as st

from scalebook.app.runs import records as run_records
from scalebook.app.runs.data import RunView
from scalebook.app.runs.records import CachingReader
from scalebook.app.search import trial_data
from scalebook.app.serving.addresses import Addresses, by_same_name
from scalebook.app.serving.mlflow_server import remote_address
from scalebook.training.asking import AnswerReader, Findings
from scalebook.training.base import ConfigError, Problem, Workspace, sqlite_address
from scalebook.training.base.files import BrokenRecord
from scalebook.training.engine.coordination import measures
from scalebook.training.experiments import Description, Experiment, catalogue, find_out, logged_metrics
from scalebook.training.experiments.search import SearchSpec
from scalebook.training.jobs import dry_runs, job_requests
from scalebook.training.jobs import waiting_reasons as queue_reasons
from scalebook.training.notebook import AnswerCell, ClaimCell, Stored
from scalebook.training.notebook.claims import EvidenceReader, Judgement, Table, judge_all, written_tables
from scalebook.training.pricing import PartRecord
from scalebook.training.search import SearchFolder, search_folder
from scalebook.training.search.study import TrialRecord, at_rest, at_work, read_study
from scalebook.training.tracking import (
    MOST_OF_NOTEBOOK,
    MetricCurve,
    NotebookRuns,
    RunReader,
    RunRecord,
    worker_figures,
)

log = logging.getLogger(__name__)
T = TypeVar("T")
LOOKING = "describe"  # the thread that does
MODEL_LOOKING = "parameters"
METRICS_LOOKING = "logged metrics"
DESCRIPTION_TTL_S = 5.0  # how soon an edit of a user's module shows up in the form
IMPORTANCE_TTL_S = 10.0
BROKEN_TTL_S = 10.0
CLAIM_TTL_S = 10.0
WORKING_TTL_S = 5.0
ALL_RUNS_TTL_S = 10.0
NOTEBOOK_TTL_S = 1.0
MOST_RUNS = 5_000  # older ones are in MLflow


def workspace() -> Workspace:
    """The folder this server was started for. A new object at each call, so that settings are read again."""
    return Workspace.find()


def reader() -> RunReader:
    """The reader of the store of runs; all visitors share it."""
    return _reader(workspace().tracking_uri())


def notebook_runs(name: str) -> RunReader:
    """A reader of a notebook's present runs, which reads them once. For one drawing of a page or of a card."""
    own = _is_own_store()
    return NotebookRuns(reader(), name, _notebook_records(name, _stamps(workspace().database)) if own else None)


@st.cache_resource(ttl=NOTEBOOK_TTL_S, max_entries=20, show_spinner=False)
def _notebook_records(name: str, changed: Sequence[int]) -> list[RunRecord]:
    """From the workspace's own database. Cached for the cards that redraw in the same second."""
    return reader().listed(MOST_OF_NOTEBOOK, notebook=name, trials=False)


def _is_own_store() -> bool:
    """Whether the workspace's own database records the runs; its files show every change."""
    return workspace().tracking_uri() == sqlite_address(workspace().database)


@st.cache_resource(show_spinner=False)
def _reader(tracking_uri: str) -> RunReader:
    return CachingReader(tracking_uri)


def description() -> Description:
    """Models, data sets, strategies and optimizers. Raises ConfigError if the user's modules prevent it."""
    return _description(str(workspace().root))


@st.cache_resource(ttl=DESCRIPTION_TTL_S, show_spinner="Reading models, data sets and strategies …")
def _description(root: str) -> Description:
    return catalogue.describe(workspace())


def description_at_hand() -> Description | None:
    """The cached `description`. None without one; a thread then describes the modules, which takes seconds."""
    if catalogue.is_kept(workspace()):
        return description()
    if not reads_models():
        threading.Thread(target=_look_behind, args=[workspace()], daemon=True, name=LOOKING).start()
    return None


def reads_models() -> bool:
    """Whether a thread of `description_at_hand` is at work."""
    return any(thread.name == LOOKING for thread in threading.enumerate())


def description_error() -> ConfigError | None:
    """Why the last thread of `description_at_hand` has found no description, once; the next call starts a new one."""
    return _NOT_DESCRIBED.pop(str(workspace().root), None)


_NOT_DESCRIBED: Final[dict[str, ConfigError]] = {}
"""By workspace."""


def _look_behind(place: Workspace) -> None:
    try:
        catalogue.describe(place)
    except ConfigError as error:
        log.warning("Could not describe models and strategies: %s", error)  # the pages that need them say it too
        _NOT_DESCRIBED[str(place.root)] = error


def look_at_model(experiment: Experiment) -> None:
    """Start a thread that reads the experiment's model, unless one is at work.

    The caller calls it again until the model is known."""
    if not any(thread.name == MODEL_LOOKING for thread in threading.enumerate()):
        copied = _copied(experiment)
        threading.Thread(target=find_out, args=[copied], daemon=True, name=MODEL_LOOKING).start()


def look_at_metrics(experiments: Sequence[Experiment]) -> None:
    """Start a thread that runs two batches of each experiment, unless one is at work, on these or others."""
    if not looks_at_metrics():
        copied = [_copied(experiment) for experiment in experiments]
        threading.Thread(target=_find_out_metrics, args=[copied], daemon=True, name=METRICS_LOOKING).start()


def _copied(experiment: Experiment) -> Experiment:
    """For a thread, while the form changes its draft."""
    return experiment.with_config(copy.deepcopy(dict(experiment.written)))


def _find_out_metrics(experiments: Sequence[Experiment]) -> None:
    for experiment in experiments:
        result = logged_metrics.cached_metrics(experiment)
        if result is None or result.problem:  # another of them may have the same model and data
            logged_metrics.find_out(experiment)


def looks_at_metrics() -> bool:
    """Whether a thread of `look_at_metrics` is at work."""
    return any(thread.name == METRICS_LOOKING for thread in threading.enumerate())


def start_dry_run(experiment: Experiment) -> None:
    """Start a thread that makes a dry run of this config, unless one is at work on it."""
    if not dry_runs_now(experiment):
        copied = _copied(experiment)
        threading.Thread(target=dry_runs.dry_run, args=[copied], daemon=True, name=_dry_runner(copied)).start()


def dry_runs_now(experiment: Experiment) -> bool:
    """Whether a thread of `start_dry_run` is at work on this config."""
    return any(thread.name == _dry_runner(experiment) for thread in threading.enumerate())


def _dry_runner(experiment: Experiment) -> str:
    return dry_runs.kept_at(experiment).stem


def look_anew() -> None:
    """Clear the cached description and waiting reasons, which change when the folder is trusted."""
    _description.clear()
    _waiting_reasons.clear()


@st.cache_resource(ttl=1.0, show_spinner=False)
def _waiting_reasons(root: str) -> dict[str, str]:
    return queue_reasons(Workspace(Path(root)))


def waiting_reasons() -> Mapping[str, str]:
    """Why each waiting job waits, by its id. Reads every job; cached for a second for all visitors."""
    return _waiting_reasons(str(workspace().root))


@st.cache_resource(ttl=BROKEN_TTL_S, show_spinner=False)
def _broken_records(root: str) -> list[BrokenRecord]:
    return [*job_requests.broken_jobs(Workspace(Path(root))), *search_folder.broken_searches(Workspace(Path(root)))]


def broken_records() -> Sequence[BrokenRecord]:
    """The records of jobs and searches that cannot be read. Reads every file; cached for all visitors."""
    return _broken_records(str(workspace().root))


@st.cache_resource(ttl=ALL_RUNS_TTL_S, refresh_mode="background", max_entries=2, show_spinner=False)
def _all_runs(tracking_uri: str, changed: Sequence[int]) -> list[RunRecord]:
    return _reader(tracking_uri).listed(MOST_RUNS)


def all_runs() -> list[RunRecord]:
    """The newest MOST_RUNS of the store, as from `RunReader.listed`; at most ALL_RUNS_TTL_S old, from the workspace's
    own database always current."""
    return _all_runs(workspace().tracking_uri(), _stamps(workspace().database))


@st.cache_resource(ttl=ALL_RUNS_TTL_S, max_entries=2, show_spinner=False)
def _parameter_names(tracking_uri: str, changed: Sequence[int]) -> list[str]:
    return _reader(tracking_uri).parameter_names()


@st.cache_resource(ttl=ALL_RUNS_TTL_S, max_entries=100, show_spinner=False)
def _parameter(tracking_uri: str, changed: Sequence[int], name: str) -> dict[str, str]:
    return _reader(tracking_uri).parameter(name)


def parameter_names() -> list[str]:
    """The parameter names of all runs in the store."""
    names = {name for record in all_runs() for name in record.params}
    return sorted({*names, *_parameter_names(workspace().tracking_uri(), _stamps(workspace().database))})


def parameter(name: str) -> Mapping[str, str]:
    """The value of this parameter in each run of the store, by the run's id."""
    values = _parameter(workspace().tracking_uri(), _stamps(workspace().database), name)
    return values or {record.id: record.params[name] for record in all_runs() if name in record.params}


def _stamps(database: Path) -> tuple[int, ...]:
    """Values that change whenever a process writes to the database."""
    files = (database, database.with_name(f"{database.name}-wal"))
    return tuple(path.stat().st_mtime_ns if path.exists() else 0 for path in files)


def look_at_all_runs_anew() -> None:
    """Clear the cached list of runs, after runs or their tags have changed."""
    _all_runs.clear()


def judgement(stored: Stored, cell: ClaimCell) -> Judgement:
    """The verdict on a claim from the present runs; with a store elsewhere, at most CLAIM_TTL_S old."""
    return judgements(stored)[cell.name]


def judgements(stored: Stored) -> Mapping[str, Judgement]:
    """The verdicts on all claims of a notebook, by name."""
    if not stored.notebook.claims():
        return {}
    return _judgements(stored, stored.path.name, stored.notebook.text, _stamps(workspace().database))


@st.cache_resource(ttl=CLAIM_TTL_S, max_entries=20, show_spinner=False)
def _judgements(_stored: Stored, notebook: str, text: str, changed: Sequence[int]) -> Mapping[str, Judgement]:
    """The verdicts on all claims of a notebook: each is corrected for the number of claims."""
    return judge_all(EvidenceReader(workspace(), notebook_runs(notebook), notebook, _stored.notebook, description()))


def answer(stored: Stored, cell: AnswerCell, working: bool) -> Findings | Problem:
    """What is known of a question, as old as a `judgement`; the problem of a cell that asks no question. While a
    process works on it, at most WORKING_TTL_S old: runs that are timed shall not wait for the page."""
    changed = _stamps(workspace().database)
    if working:
        changed = tuple(int(stamp // (WORKING_TTL_S * 1e9)) for stamp in changed)
    return _answers(stored, stored.path.name, stored.notebook.text, changed)[cell.name]


@st.cache_resource(ttl=CLAIM_TTL_S, max_entries=20, show_spinner=False)
def _answers(_stored: Stored, notebook: str, text: str, changed: Sequence[int]) -> Mapping[str, Findings | Problem]:
    nb = _stored.notebook
    read = AnswerReader(workspace(), notebook_runs(notebook), notebook, nb, description())
    answers: dict[str, Findings | Problem] = {}
    for cell in nb.answers():
        try:
            answers[cell.name] = read.answer(
                cell, _judgements(_stored, notebook, text, changed) if nb.claims() else None
            )
        except ConfigError as error:
            answers[cell.name] = error.problem
    return answers


def result_tables(stored: Stored) -> Mapping[str, Table]:
    """The result tables for the places in the notebook's text; as old as a `judgement`."""
    return _result_tables(stored, stored.path.name, stored.notebook.text, _stamps(workspace().database))


@st.cache_resource(ttl=CLAIM_TTL_S, max_entries=20, show_spinner=False)
def _result_tables(_stored: Stored, notebook: str, text: str, changed: Sequence[int]) -> Mapping[str, Table]:
    witness = EvidenceReader(workspace(), reader(), notebook, _stored.notebook, description())
    return written_tables.tables(witness, _judgements(_stored, notebook, text, changed))


def mlflow_address() -> str | None:
    """The address of MLflow's pages, None if no server runs. For our server, with the host name that the browser
    uses."""
    addresses = Addresses.read(workspace())
    if addresses is None or addresses.mlflow is None or remote_address():
        return addresses.mlflow if addresses else None
    return by_same_name(addresses.mlflow, st.context.url or "")


def curves(record: RunRecord, metrics: Sequence[str]) -> list[MetricCurve]:
    """The curves of those `metrics` that have points, in this order."""
    return [curve for curve in reader().curves(record.id, metrics) if curve.values] if metrics else []


def pushes(view: RunView) -> measures.PushRecord | None:
    """The record of the workers' pushes; None if the run has no parameter server, or has no push yet.

    From the job's folder, which is current while the run is active; without one, from the store.
    """
    if view.job is not None and (record := run_records.pushes_in_folder(view.job.path)) is not None:
        return record
    return _ended_pushes(workspace().tracking_uri(), view.id) if view.ended else None


@st.cache_resource(max_entries=1000, show_spinner=False)
def _ended_pushes(tracking_uri: str, run_id: str) -> measures.PushRecord | None:
    return run_records.pushes_in_store(_reader(tracking_uri), run_id)


def parts(view: RunView) -> PartRecord | None:
    """Which part of a split model lies where; None for a run of another strategy, or before the first step that was
    measured. From where `pushes` has its record."""
    if view.job is not None and (record := run_records.parts_in_folder(view.job.path)) is not None:
        return record
    return _ended_parts(workspace().tracking_uri(), view.id) if view.ended else None


@st.cache_resource(max_entries=1000, show_spinner=False)
def _ended_parts(tracking_uri: str, run_id: str) -> PartRecord | None:
    return run_records.parts_in_store(_reader(tracking_uri), run_id)


def figures_by_worker(view: RunView) -> worker_figures.WorkerFigures:
    """The figures of each worker, from the job's folder or else the store; none for a run of one process."""
    if view.workers < 2:
        return worker_figures.WorkerFigures()
    if view.job is not None and (state := run_records.workers_state(view.job.path)) is not None:
        return _living_figures(view.job.path, *state)
    return _ended_figures(workspace().tracking_uri(), view.id) if view.ended else worker_figures.WorkerFigures()


@st.cache_resource(max_entries=20, show_spinner=False)
def _living_figures(folder: Path, changed_ns: int, size: int) -> worker_figures.WorkerFigures:
    return run_records.workers_in_folder(folder)


@st.cache_resource(max_entries=100, show_spinner=False)
def _ended_figures(tracking_uri: str, run_id: str) -> worker_figures.WorkerFigures:
    return run_records.workers_in_store(_reader(tracking_uri), run_id)


def samples_picture(record: RunRecord) -> bytes | None:
    """The last samples of a generative model, as PNG."""
    if record.ended is None:
        return run_records.samples_picture(reader(), record.id)
    return _ended_picture(workspace().tracking_uri(), record.id)


@st.cache_resource(max_entries=200, show_spinner=False)
def _ended_picture(tracking_uri: str, run_id: str) -> bytes | None:
    return run_records.samples_picture(_reader(tracking_uri), run_id)


@st.cache_resource(max_entries=500, show_spinner=False)
def _config_text(tracking_uri: str, run_id: str) -> str:
    return run_records.config_text(_reader(tracking_uri), run_id)


def config_text(record: RunRecord) -> str:
    """The recorded config of the run."""
    return _config_text(workspace().tracking_uri(), record.id)


def search_spec(folder: SearchFolder) -> SearchSpec:
    """The spec of a search; read again when the search is extended. Raises ConfigError if a module is gone."""
    return _search_spec(str(folder.path), folder.stamp())


@st.cache_resource(max_entries=200, show_spinner=False)
def _search_spec(path: str, changed: int) -> SearchSpec:
    return SearchFolder(Path(path)).spec(description())


def search_records(folder: SearchFolder) -> list[TrialRecord]:
    """All trials of the study, at most a second old; all visitors share the list."""
    return _search_records(str(folder.path), folder.stamp())


@st.cache_resource(ttl=1.0, max_entries=50, show_spinner=False)
def _search_records(path: str, changed: int) -> list[TrialRecord]:
    folder = SearchFolder(Path(path))
    folder.require_trust(reading=True)
    request = folder.request()
    records = read_study(request.storage, request.study, search_spec(folder))
    if folder.state() in search_folder.ENDED:
        return at_rest(records)
    progress = folder.progress()
    return records if progress is None or progress.now is None else at_work(records, progress.now)


def cached_figure(draw: Callable[..., T], *arguments: object) -> T:
    """`draw(*arguments)`: a figure, which nobody may change. Cached by its arguments for all visitors: the map of 100
    trials takes 0.1 s of CPU time."""
    return _drawn(f"{draw.__module__}.{draw.__qualname__}", repr(arguments), lambda: draw(*arguments))


@st.cache_resource(max_entries=40, show_spinner=False)
def _drawn(what: str, arguments: str, _draw: Callable[[], T]) -> T:
    return _draw()


def search_factors(folder: SearchFolder) -> Mapping[int, float]:
    """The factor that scaled the learning rate of each trial, by the trial's number."""
    return trial_data.factors(search_records(folder), search_spec(folder))


def search_importance(folder: SearchFolder) -> dict[str, float] | None:
    """The importance of each dimension, computed at most every IMPORTANCE_TTL_S; None with too few trials."""
    return _search_importance(str(folder.path), folder.stamp())


@st.cache_resource(ttl=IMPORTANCE_TTL_S, max_entries=50, show_spinner=False)
def _search_importance(path: str, changed: int) -> dict[str, float] | None:
    folder = SearchFolder(Path(path))
    return trial_data.importance(search_records(folder), search_spec(folder))
