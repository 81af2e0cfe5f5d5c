"""Starting, resuming, stopping and finding searches: what buttons and the command line call."""

import shutil
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from scalebook.training.base import ConfigError, Problem, Workspace, code_changes, trust
from scalebook.training.base.files import BrokenRecord, disk_errors, forget_records, records, refusals_told
from scalebook.training.experiments import Description, Experiment, config_hash
from scalebook.training.experiments.search import (
    MOST_POINTS,
    SearchSpec,
    body_of,
    extremes,
    identity,
    read_search,
    resolve,
    summary,
)
from scalebook.training.jobs import (
    NodeDevices,
    gpu_problems,
    has_environment,
    job_requests,
    keep_environment,
    machines_of,
    read_recorded,
    supervisor_handle,
)
from scalebook.training.search.search_folder import ENDED, SearchFolder, SearchRequest, all_searches
from scalebook.training.tracking import RunReader, directions, names, notes, run_start

RECENT_RUNS: Final = 5


def start(
    workspace: Workspace,
    body: Mapping[str, Any],
    base: Experiment | None,
    *,
    name: str,
    notebook: str | None = None,
    cell: str | None = None,
    description: Description,
    recorded: Mapping[str, str] = MappingProxyType({}),
) -> SearchFolder:
    """Begin a search, or resume the study of the same name, notebook and identity, with the budget of `body`.

    `base` is the experiment that `body` names, if it names one; `recorded` are further tags of a new
    search's run. ConfigError before anything is made.
    """
    spec = read_search(body, base, description)
    if notebook is not None and base is not None:
        require_logged(workspace, spec, notebook, str(body.get("experiment", "")), base)
    what = identity(spec)
    for problem in lacking_gpus(spec, machines_of(workspace)):
        raise ConfigError.of(problem)
    read_recorded(spec.experiment.written, partial(job_requests.find, workspace))  # refused here, not by each trial
    code = code_changes.CodeNow(description.folder)
    for search in all_searches(workspace):
        request = search.request()
        same = (request.notebook, request.name, request.identity) == (notebook, name, what)
        if same and search.may_run() and not (code.changed(request.modules) and _has_results(search)):
            return _go_on(search, spec)
    with refusals_told():
        modules = _modules(workspace, spec)
        folder = _make(workspace, spec, what, name, notebook, cell, recorded, modules)
    _wake(folder)
    return folder


def require_logged(
    workspace: Workspace,
    spec: SearchSpec,
    notebook: str,
    name: str,
    experiment: Experiment,
) -> None:
    """ConfigError for an objective that neither finished runs of the same experiment, the cell `name`, have logged nor
    the model's source names, or whose direction is the opposite of the one that they have recorded."""
    hashed, code = config_hash(experiment), code_changes.CodeNow(experiment.description.folder)
    where = "attributes.status = 'FINISHED'"
    runs = RunReader(workspace.tracking_uri()).runs(
        notebook=notebook, cell=name, config_hash=hashed, where=where, limit=RECENT_RUNS
    )
    runs = [run for run in runs if not code.changed(run.tags.get(names.TAG_MODULES, ""))]
    model = experiment.model.info
    logged = {name for run in runs for name in run.metrics}
    for objective in spec.objectives:
        if not runs or objective.name in names.AXES:
            continue
        present = logged & {objective.name, names.best(objective.name)}
        if not present and objective.name not in (model.metrics if model else ()):
            fix = f"Use one of these metrics. If the model logs {objective.name} now, run {name} once more instead."
            raise ConfigError("objective", f"is {objective.name}; {names.unlogged(objective.name, logged)}", fix)
        better = directions.of_runs(objective.name, None, [run.tags for run in runs], [experiment.callbacks])
        if not objective.said and better.lower != objective.lower:
            goal = "min" if better.lower else "max"
            message = (
                f"optimizes {objective.name} in the wrong direction, because {better.plain} according to the runs of "
                f"{name}"
            )
            raise ConfigError("objective", message, f"Set objective: {{{objective.name}: {goal}}}.")


def lacking_gpus(spec: SearchSpec, machines: Sequence[NodeDevices]) -> list[Problem]:
    """GPUs that trials at the ends of the space need and no machine has."""
    key = "space.workers" if spec.has("workers") else "space.strategy" if spec.has("strategy") else "config"
    if not any(machine.gpus for machine in machines):
        return gpu_problems(spec.experiment, machines)
    by_message: dict[str, Problem] = {}
    for _, point in islice(extremes(spec), MOST_POINTS):
        for problem in gpu_problems(resolve(spec, point), machines):
            at_end = problem.moved_to(key, f"{summary(spec, point)} cannot run: {problem.key} ")
            by_message.setdefault(problem.message, at_end)
    return list(by_message.values())


def resume(folder: SearchFolder, description: Description, trials: int | None = None) -> SearchFolder:
    """Go on with a search that has ended or was interrupted; `trials` is the new number of them in all."""
    folder.require_trust()
    spec = folder.spec(description)
    if trials is not None and trials < spec.trials and folder.state() not in ENDED:
        raise ConfigError("trials", f"is {trials}, which is fewer than before", "Stop the search instead.")
    body = body_of(spec)
    return _go_on(folder, read_search({**body, "trials": trials or spec.trials}, None, description))


def stop(folder: SearchFolder) -> None:
    """Request its end: running trials are stopped, and run again when the search is resumed."""
    if folder.state() not in ENDED:
        folder.stop_file.touch()
        _wake(folder)


def give(folder: SearchFolder, points: Sequence[Mapping[str, Any]]) -> None:
    """Queue points to be tried next; a search that has ended takes them when it is resumed."""
    folder.given_points.mkdir(exist_ok=True)
    for place, point in enumerate(points):
        name = f"{time.time():017.6f}-{place}-{uuid.uuid4().hex[:6]}.json"
        records.save(folder.given_points / name, dict(point), durable=True)


def waiting_points(folder: SearchFolder) -> list[tuple[Path, dict[str, Any]]]:
    """The points that wait in `given/`, the oldest first; the driver removes the file when the study has the point."""
    if not folder.given_points.is_dir():
        return []
    points = []
    for path in sorted(path for path in folder.given_points.iterdir() if not path.name.startswith(".")):
        try:
            point = records.load(path, dict[str, Any])
        except BrokenRecord as error:
            print(f"scalebook: a manually added point is left out: {error}", flush=True)
            shutil.move(path, path.with_name(f".{path.name}"))  # for whoever wants to look at it
        else:
            points += [(path, point)] if point is not None else []
    return points


def find(workspace: Workspace, word: str) -> SearchFolder:
    """The one search whose id begins with `word`, or the newest of that name; ConfigError if there is none."""
    searches = all_searches(workspace)
    by_id = [search for search in searches if search.id.startswith(word)]
    if len(by_id) == 1:
        return by_id[0]
    if named := [search for search in searches if search.request().name == word]:
        return named[0]
    if by_id:
        raise ConfigError(word, f"matches {len(by_id)} searches", "Use more characters of the id.")
    raise ConfigError(word, f"is not a search of {workspace.root}", "`scalebook search list` shows all searches.")


def of_cell(workspace: Workspace, notebook: str, cell: str) -> SearchFolder | None:
    """The newest search of a notebook's cell."""
    pairs = ((search, search.request()) for search in all_searches(workspace))
    return next((search for search, request in pairs if (request.notebook, request.cell) == (notebook, cell)), None)


def what_changed(
    ran: str,
    modules: str,
    body: Mapping[str, Any],
    base: Experiment | None,
    description: Description,
    code: code_changes.CodeNow | None = None,
) -> str:
    """What has changed since the search of identity `ran` began, in words: its space, objective or config, or the
    user's own modules, of which `modules` is the record; "" if nothing. `code`: those modules, if they are not those of
    the description's folder."""
    try:
        same = identity(read_search(body, base, description)) == ran
    except ConfigError:
        same = False
    if not same:
        return "the search has changed"
    changed = code_changes.file_list((code or code_changes.CodeNow(description.folder)).changed(modules))
    return changed and code_changes.changed_words([changed])


def delete(folder: SearchFolder) -> None:
    """Remove an ended search's folder with its study; its runs stay."""
    if folder.state() not in ENDED and (folder.may_run() or folder.driven()):
        raise ConfigError(folder.request().name, f"is {folder.state()}", "Stop it first.")
    shutil.rmtree(folder.path)


def _go_on(folder: SearchFolder, spec: SearchSpec) -> SearchFolder:
    """Give an existing search a new budget; its driver looks at `search.yaml` when that changes.

    Where no trial has a result yet, its code is that of now: whoever mended it goes on.
    """
    request = folder.request()
    if code_changes.CodeNow(str(folder.workspace.root)).changed(request.modules) and not _has_results(folder):
        folder.write(replace(request, modules=_modules(folder.workspace, spec)))
        forget_records()
    folder.write_body(body_of(spec))
    trust.sign(folder.path, folder.id, trust.SEARCH)
    if not has_environment(folder.path):  # it has ended: from now on it has that of whoever resumes it
        keep_environment(folder.path, folder.id)
    if folder.state() in ENDED or folder.stop_file.exists():
        if not folder.driven():
            folder.undriven()
        folder.stop_file.unlink(missing_ok=True)
        (folder.path / "result.json").unlink(missing_ok=True)
    _wake(folder)
    return folder


def _modules(workspace: Workspace, spec: SearchSpec) -> str:
    return code_changes.used(workspace, {"config": spec.experiment.completed, "space": body_of(spec)["space"]}).record()


def _has_results(folder: SearchFolder) -> bool:
    """Whether any of its trials has finished, as far as its driver has said."""
    progress = folder.progress()
    return progress is not None and progress.best is not None


def _make(
    workspace: Workspace,
    spec: SearchSpec,
    what: str,
    name: str,
    notebook: str | None,
    cell: str | None,
    recorded: Mapping[str, str],
    modules: str = "",
) -> SearchFolder:
    workspace.create()
    client = run_start.open_store(workspace)
    mlflow_experiment = Path(notebook).stem if notebook else job_requests.COMMAND_LINE
    tags = {names.TAG_SEARCH: name, names.TAG_CONFIG_HASH: what, **run_start.surroundings(workspace.root), **recorded}
    tags |= {names.TAG_MODULES: modules} if modules else {}
    tags |= {key: value for key, value in ((names.TAG_NOTEBOOK, notebook), (names.TAG_CELL, cell)) if value}
    body = body_of(spec)
    with disk_errors(workspace.hidden), run_start.submission(workspace) as run_tags:
        trials = run_start.experiment_id(
            client, workspace, notes.trials_experiment(mlflow_experiment, name), notebook, name
        )
        own = run_start.experiment_id(client, workspace, mlflow_experiment, notebook)
        run_id = run_start.create_run(client, own, name, tags | run_tags, body, trials)
        final = workspace.studies / run_id
        request = SearchRequest(
            id=run_id,
            created=time.time(),
            name=name,
            mlflow_experiment=mlflow_experiment,
            tracking_uri=workspace.tracking_uri(),
            identity=what,
            storage=spec.storage or f"journal:{final / 'study.journal'}",
            notebook=notebook,
            cell=cell,
            trials_experiment=trials,
            modules=modules,
        )
        beside = SearchFolder(workspace.studies / f".{run_id}")
        beside.path.mkdir()
        beside.write(request)
        beside.write_body(body)
        trust.sign(beside.path, run_id, trust.SEARCH)
        keep_environment(beside.path, run_id)
        client.log_artifact(run_id, str(beside.path / "search.yaml"))
        made = SearchFolder(beside.path.rename(final))
    records.sync_folder(workspace.studies)
    return made


def _wake(folder: SearchFolder) -> None:
    """The supervisor, which keeps drivers alive, looks when the folder of the studies changes."""
    folder.path.parent.touch()
    supervisor_handle.ensure(folder.workspace)
