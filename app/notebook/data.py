"""Renaming a notebook's file, together with its runs, searches and drafts."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from scalebook.app.ask import data as questions
from scalebook.app.compare.data import ComparisonDraft
from scalebook.app.search_setup.data import SavedSetup
from scalebook.app.shared import drafts
from scalebook.app.shared.drafts import NoteDraft, SavedDraft
from scalebook.training.base import ConfigError, Workspace, sqlite_address, trust
from scalebook.training.base.files import forget_records
from scalebook.training.jobs import ENDED, job_requests
from scalebook.training.notebook import Stored, lifecycle
from scalebook.training.search import search_folder
from scalebook.training.tracking import RunReader, names, notes

if TYPE_CHECKING:
    from mlflow.entities import Experiment

DRAFTS: Final = (SavedDraft, NoteDraft, SavedSetup, ComparisonDraft)
MOST_RUNS: Final = 50_000
LIVE_SEARCH: Final = ("running", "stopping", "waiting")


def rename(workspace: Workspace, reader: RunReader, stored: Stored, stem: str) -> Stored:
    """Move the notebook to the file `stem`.md, with all that refers to it.

    Begins with the runs, because MLflow may be unreachable; after a failure, calling it again continues.
    Raises ConfigError while anything of the notebook is active, and for a name that is taken or not allowed;
    EditedMeanwhile.
    """
    old, new = stored.path.name, f"{stem}.md"
    lifecycle.require_stem(stored.path, stem)
    if _under_way(workspace, old) or questions.works(workspace, stored):
        raise ConfigError(
            "file name", f"cannot change while {old} has active runs", "Stop the runs, or wait until they end."
        )
    _runs(workspace, reader, old, new)
    _searches(workspace, old, new)
    moved = lifecycle.move_file(stored, stem)
    for cell in stored.notebook.answers():
        questions.folder_of(workspace, stored, cell).move(new)
    for kind in DRAFTS:
        drafts.move(workspace, kind, stored.path.stem, stem)
    return moved


def _under_way(workspace: Workspace, notebook: str) -> bool:
    jobs = (job for job in job_requests.all_jobs(workspace) if job.request().notebook == notebook)
    searches = (search for search in search_folder.all_searches(workspace) if search.request().notebook == notebook)
    return any(job.state() not in ENDED for job in jobs) or any(search.state() in LIVE_SEARCH for search in searches)


def _runs(workspace: Workspace, reader: RunReader, old: str, new: str) -> None:
    """Retag the runs of this workspace. A shared store may have runs of other notebooks with the same name."""
    from mlflow.exceptions import MlflowException

    own = reader.tracking_uri == sqlite_address(workspace.database)
    try:
        for run in reader.runs(notebook=old, limit=MOST_RUNS):
            if own or (workspace.jobs / run.id).exists() or (workspace.studies / run.id).exists():
                reader.client.set_tag(run.id, names.TAG_NOTEBOOK, new)
                reader.client.set_tag(run.id, names.TAG_SOURCE, new)
        experiment, other = (reader.client.get_experiment_by_name(Path(name).stem) for name in (old, new))
        if own and experiment is not None and other is None:
            reader.client.rename_experiment(experiment.experiment_id, Path(new).stem)
            _describe(reader, experiment, old, new)
        if own:
            _trials(workspace, reader, old, new)
    except MlflowException as error:
        raise ConfigError("MLflow", f"refused the new name ({error.message[:200]})", "Try again.") from error


def _trials(workspace: Workspace, reader: RunReader, old: str, new: str) -> None:
    """Rename the MLflow experiments that hold the trials of the notebook's searches."""
    for search in search_folder.all_searches(workspace):
        request = search.request()
        if request.notebook != old or not request.trials_experiment:
            continue
        experiment = reader.client.get_experiment(request.trials_experiment)
        name = notes.trials_experiment(Path(new).stem, request.name)
        if experiment.name != name and reader.client.get_experiment_by_name(name) is None:
            reader.client.rename_experiment(experiment.experiment_id, name)
        _describe(reader, experiment, old, new, request.name)


def _describe(reader: RunReader, experiment: "Experiment", old: str, new: str, search: str = "") -> None:
    """Put the notebook's new name into the description of an MLflow experiment, unless a person has changed it."""
    before, after = (notes.of_experiment(experiment.experiment_id, name, search) for name in (old, new))
    if experiment.tags.get(names.TAG_NOTE) == before:
        reader.client.set_experiment_tag(experiment.experiment_id, names.TAG_NOTE, after)


def _searches(workspace: Workspace, old: str, new: str) -> None:
    for search in search_folder.all_searches(workspace):
        request = search.request()
        if request.notebook != old:
            continue
        is_signed = trust.signed(search.path, trust.SEARCH)
        search.write(replace(request, notebook=new))
        if is_signed:
            trust.sign(search.path, search.id, trust.SEARCH)
    forget_records()
