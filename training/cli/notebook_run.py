"""Run a notebook headless: submit its experiments, watch them, print comparisons and failures."""

import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from scalebook.training.base import Workspace, duration
from scalebook.training.base.files import disk_problem, require_room
from scalebook.training.cli.run_lines import RunLines
from scalebook.training.experiments import Description
from scalebook.training.jobs import (
    ENDED,
    JobFolder,
    State,
    SupervisorKeeper,
    job_requests,
    supervisor_handle,
    waiting_reasons,
)
from scalebook.training.notebook import (
    ExperimentCell,
    Notebook,
    compare,
    comparison_text,
    lost_workers,
    record_figures,
    results,
    shared_numbers,
    store,
)
from scalebook.training.notebook.claims import EvidenceReader, claim_table, claim_tags, judge_all, written_tables
from scalebook.training.search import search_folder
from scalebook.training.tracking import RunReader, names

LOOK_EVERY_S: Final = 0.25
REASONS_EVERY_S: Final = 2.0
STOP_DEADLINE_S: Final = 60.0
"""Deadline for runs that were asked to stop; the supervisor kills those that do not react well before."""

SILENCE_S: Final = 1800.0
"""Watching ends if no run changes for so long. The supervisor's own deadlines are shorter."""

RECORD_DEADLINE_S: Final = 30.0
"""Deadline for MLflow to record a run's end. The run's folder may show it first, if other nodes share it."""

INTERRUPTED: Final = 130


@dataclass(frozen=True)
class NotebookSelection:
    """What to run: `cells` of the notebook in `path`, each with its own repeats or with `seeds` of them."""

    path: Path
    notebook: Notebook
    cells: list[ExperimentCell]
    seeds: int | None
    stale: bool = False
    """Only the seeds that have not finished with the current config and modules."""

    @property
    def workspace(self) -> Workspace:
        """The notebook's folder."""
        return Workspace(self.path.resolve().parent)


def run(wanted: NotebookSelection, description: Description, out: TextIO) -> int:
    """0 when all runs finished, 1 when any did not, 130 when interrupted; the runs are then stopped.

    Raises ConfigError before anything starts. Returns only when every run has ended, or nothing moves any more.
    """
    workspace = wanted.workspace.create()
    require_room(workspace.hidden)
    for error in [*job_requests.broken_jobs(workspace), *search_folder.broken_searches(workspace)]:
        out.write(f"scalebook: warning: {error}\n")
    begun = time.monotonic()
    with supervisor_handle.hold_supervisor(workspace):
        jobs = _submit(wanted, workspace, description)
        if not jobs:
            out.write(
                "Nothing is stale, because every seed has finished or is running with the current config and modules.\n"
            )
            _compare(wanted, workspace, description, out)
            return 0
        metrics = {job.id: _metric(wanted, job, description) for job in jobs}
        board = RunLines(out, jobs, metrics)
        try:
            moved = _watch(workspace, jobs, board)
        except KeyboardInterrupt:
            return _interrupted(workspace, jobs, board)
    states = [job.state() for job in jobs]
    finished = states.count("finished")
    board.print_line(f"\n{finished} of {len(jobs)} runs finished in {duration(time.monotonic() - begun)}.")
    if not moved:
        board.print_line(
            f"Nothing happened for {duration(SILENCE_S)}. Use `scalebook jobs list` to see what is still waiting."
        )
    for job, state in zip(jobs, states, strict=True):
        if state != "finished":
            board.print_line(_explained(job, state))
        elif (result := job.result()) is not None and result.lost:
            board.print_line(f"{job.request().title}: {result.lost}.")
    require_room(workspace.hidden)  # else MLflow would be waited for, which can record nothing
    if unrecorded := wait_for_record(workspace, [job.id for job in jobs if job.state() in ENDED]):
        board.print_line(
            f"MLflow has not yet recorded the end of {_runs(unrecorded)}, so the results below are incomplete."
        )
    _compare(wanted, workspace, description, out)
    return 0 if finished == len(jobs) else 1


def _submit(wanted: NotebookSelection, workspace: Workspace, description: Description) -> list[JobFolder]:
    jobs: list[JobFolder] = []
    for cell in wanted.cells:
        jobs += job_requests.submit(
            workspace,
            cell.experiment(description),
            seeds=_due(wanted, cell, workspace, description) if wanted.stale else cell.seeds(wanted.seeds),
            notebook=wanted.path.name,
            cell=cell.name,
            recorded=claim_tags(wanted.notebook, cell.name, description),
        )
    return jobs


def _due(wanted: NotebookSelection, cell: ExperimentCell, workspace: Workspace, description: Description) -> list[int]:
    reader, seeds = RunReader(workspace.tracking_uri()), cell.seeds(wanted.seeds)
    by_seed = results(reader, wanted.path.name, cell, description, wanted.notebook, seeds)
    return [result.seed for result in by_seed if result.due]


def _metric(wanted: NotebookSelection, job: JobFolder, description: Description) -> str:
    """The metric to show while the job runs: that of the first comparison with its cell, else the model's main one."""
    cell = job.request().cell
    compared = [
        comparison.metric
        for comparison in wanted.notebook.comparisons()
        if cell in comparison.runs and comparison.metric
    ]
    experiment = wanted.notebook.experiment(cell or "")
    model = experiment.experiment(description).model.info if experiment else None
    return next(iter([*compared, *(model.metrics if model else [])]), names.VAL_LOSS)


def _watch(workspace: Workspace, jobs: Sequence[JobFolder], board: RunLines) -> bool:
    """Watch until all jobs have ended; False if nothing happens for SILENCE_S. Replaces a supervisor that dies."""
    reasons: Mapping[str, str] = {}
    reasons_at = -REASONS_EVERY_S
    seen: object = None
    moved = time.monotonic()
    keeper = SupervisorKeeper(workspace)
    while True:
        states: dict[str, State] = {job.id: job.state() for job in jobs}
        now = time.monotonic()
        if now - reasons_at >= REASONS_EVERY_S:
            reasons_at = now
            reasons = waiting_reasons(workspace) if "waiting" in states.values() else {}
        board.draw(states, reasons)
        if all(state in ENDED for state in states.values()):
            return True
        keeper.has_changed()
        if news := keeper.news():
            board.print_line(f"scalebook: {news}")
        signs = (states, [progress.time for job in jobs if (progress := job.progress())])
        if signs != seen:
            seen, moved = signs, now
        if now - moved > SILENCE_S:
            return False
        time.sleep(LOOK_EVERY_S)


def wait_for_record(workspace: Workspace, run_ids: Sequence[str], deadline_s: float = RECORD_DEADLINE_S) -> int:
    """Wait until MLflow has recorded the end of these runs; returns how many are missing at the deadline."""
    reader, deadline = RunReader(workspace.tracking_uri()), time.monotonic() + deadline_s
    going = list(run_ids)
    while going := [run_id for run_id in going if _is_going(reader, run_id)]:
        if time.monotonic() > deadline or disk_problem(workspace.hidden):
            break
        time.sleep(LOOK_EVERY_S)
    return len(going)


def _is_going(reader: RunReader, run_id: str) -> bool:
    try:
        return reader.run(run_id).ended is None
    except KeyError:  # the store has none such: nobody will end it
        return False


def _interrupted(workspace: Workspace, jobs: Sequence[JobFolder], board: RunLines) -> int:
    going = [job for job in jobs if job.state() not in ENDED]
    board.print_line(
        f"\nInterrupted: stopping {_runs(len(going))} (press Ctrl+C again to exit now; the supervisor then stops the "
        "runs)."
    )
    for job in going:
        job_requests.stop(job, "by Ctrl+C in `scalebook notebook run`")
    if silent := supervisor_handle.silence(workspace):
        board.print_line(f"scalebook: {silent}")
    deadline = time.monotonic() + STOP_DEADLINE_S
    try:
        while time.monotonic() < deadline and any(job.state() not in ENDED for job in going):
            time.sleep(LOOK_EVERY_S)
    except KeyboardInterrupt:
        board.print_line("The supervisor stops the remaining runs.")
        return INTERRUPTED
    ended = sum(job.state() in ENDED for job in going)
    late = "" if ended == len(going) else f" {_runs(len(going) - ended)} did not end within {STOP_DEADLINE_S:g} s."
    board.print_line(f"Stopped {_runs(ended)}.{late}")
    return INTERRUPTED


def _runs(number: int) -> str:
    return f"{number} run" if number == 1 else f"{number} runs"


def _explained(job: JobFolder, state: State) -> str:
    """A sentence about a run that did not finish: its name, state, cause, remedy, and the command for its log."""
    result, title = job.outcome(), job.request().title
    if result is None:
        words = "The run is still active."
    elif result.failure:
        words = f"{result.failure}: {result.cause.rstrip('.')}. {result.advice}"
    else:
        words = result.cause or "The run was stopped."
    return f"{title} {state}. {words} Log: `scalebook jobs log {job.id[:8]}`."


def _compare(wanted: NotebookSelection, workspace: Workspace, description: Description, out: TextIO) -> None:
    """Print the comparisons of the notebook that name a cell that was run, and the claims."""
    reader = RunReader(workspace.tracking_uri())
    ran = {cell.name for cell in wanted.cells}
    compared = {name for cell in wanted.notebook.comparisons() for name in cell.runs}
    for experiment in wanted.cells:
        seeds = experiment.seeds(wanted.seeds)
        by_seed = results(reader, wanted.path.name, experiment, description, wanted.notebook, seeds)
        runs = [result.run for result in by_seed if result.run is not None and not result.stale]
        for words in (shared_numbers(runs), lost_workers(runs)):
            if experiment.name not in compared and words:
                out.write(f"{experiment.name}: {words}\n")
    concerned = [cell for cell in wanted.notebook.comparisons() if ran & set(cell.runs)]
    witness = EvidenceReader(workspace, reader, wanted.path.name, wanted.notebook, description)
    is_judged = concerned and wanted.notebook.claims() and wanted.seeds is None  # else by other runs than claims
    judged = judge_all(witness) if is_judged else {}
    for cell in concerned:
        comparison = compare(reader, wanted.path.name, wanted.notebook, cell, description, wanted.seeds, judged)
        out.write(f"\n{comparison_text(comparison)}\n")
        if problem := record_figures(reader, comparison):
            out.write(f"MLflow has not recorded the figures of {cell.name}: {problem}\n")
    say_claims(wanted.path, wanted.notebook, description, ran, out)


def say_claims(path: Path, nb: Notebook, description: Description, ran: Container[str], out: TextIO) -> None:
    """Print the verdict on every claim about a cell that was run: an experiment, or a search whose parts it names.

    Verdicts come from the recorded runs with the seeds of the cells.
    """
    workspace = Workspace(path.resolve().parent)
    witness = EvidenceReader(workspace, RunReader(workspace.tracking_uri()), path.name, nb, description)
    concerned = {
        cell.name
        for cell in nb.claims()
        if any(name in ran for name in [*cell.searches, *(side for side in cell.sides if isinstance(side, str))])
    }
    judged = judge_all(witness) if concerned else {}
    for name, judgement in judged.items():
        if name in concerned:
            out.write(f"\n{claim_table.text(judgement)}\n")
    write_tables(path, description, out)
    out.flush()


def write_tables(path: Path, description: Description, out: TextIO) -> None:
    """Write the results of the workspace's runs into the places that the notebook's present file has for them."""
    stored, workspace = store.read(path), Workspace(path.resolve().parent)
    witness = EvidenceReader(workspace, RunReader(workspace.tracking_uri()), path.name, stored.notebook, description)
    filled = written_tables.fill(stored.notebook, written_tables.tables(witness))
    if filled == stored.notebook:
        return
    try:
        store.save(stored, filled)
    except store.EditedMeanwhile:
        out.write(f"{path} was edited in the meantime. To write its results, run `{written_tables.COMMAND} {path}`.\n")
        return
    out.write(f"Wrote results into {path}.\n")
