"""`scalebook jobs`: show and change the queue of this workspace."""

import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final, get_args

from scalebook.training.base import LONGEST_KEY, ConfigError, Workspace, one_line, roughly, trust
from scalebook.training.base.files import BrokenRecord, CommandParser, add_command, records, safe_reading, terminal
from scalebook.training.cli.run_lines import bar
from scalebook.training.experiments import catalogue
from scalebook.training.jobs import (
    ENDED,
    Direction,
    JobFolder,
    JobRequest,
    job_requests,
    move,
    part_folders,
    supervisor_handle,
    waiting_reasons,
)
from scalebook.training.supervisor import JobLimits, supervise

WAITING: Final = "how-to/troubleshooting.md"
ENDINGS: Final = "concepts/failures.md"
FOLLOW_S = 0.2
PIECE = 2**20
"""Bytes of a log to read at once."""


def main(argv: Sequence[str]) -> int:
    """Exit code: 0; 1 if another supervisor is running already. Raises ConfigError for mistakes."""
    options = parser().parse_args(argv)
    action: Callable[[Workspace, Any], int] = options.action
    workspace = Workspace.find()
    trust.resolve_trust(workspace, options.trust)
    if options.trust and action is not _supervise:
        supervisor_handle.ensure(workspace)  # for the jobs that were found
    return action(workspace, options)


def parser() -> CommandParser:
    """The parser of `scalebook jobs`."""
    parser = CommandParser(
        "scalebook jobs", about="Show and change the queue of this workspace.", example="jobs list", page=WAITING
    )
    commands = parser.add_subparsers(required=True, metavar="list|log|stop|move|resume|delete|supervise")
    show = add_command(commands, "list", "List all jobs, newest last.", "jobs list", WAITING)
    show.add_argument("--json", action="store_true", help="print the jobs as a JSON list")
    show.set_defaults(action=_list)
    log = _of_job(
        commands, "log", "Print the log of a job.\n\nIn a terminal, escape sequences are printed as text.", _log
    )
    log.add_argument("-f", "--follow", action="store_true", help="follow the log until the job ends")
    about = "Stop a job at its next update.\n\nIf the job does not stop, the supervisor kills it."
    stop = _of_job(commands, "stop", about, _stop, nargs="?")
    stop.add_argument(
        "--all", action="store_true", help="stop every waiting and running job, except the trials of searches"
    )
    about = "Move a waiting job to another place in the queue."
    move_ = _of_job(commands, "move", about, _move, example="jobs move 3f2a9c1e first")
    move_.add_argument("direction", choices=get_args(Direction), help="the new place in the queue")
    _of_job(commands, "resume", "Resume an ended job from its newest checkpoint, as a new job.", _resume)
    _of_job(commands, "delete", "Delete an ended job and its MLflow run.", _delete)
    about = "Run the supervisor in the foreground until no jobs are left.\n\nOther commands start it in the background."
    add_command(commands, "supervise", about, "jobs supervise", ENDINGS).set_defaults(action=_supervise)
    for subparser in commands.choices.values():
        subparser.add_argument(trust.OPTION, action="store_true", help=trust.HELP)
    return parser


def _of_job(
    commands: Any, name: str, about: str, action: Callable[..., int], example: str = "", nargs: str | None = None
) -> CommandParser:
    parser = add_command(
        commands, name, about, example or f"jobs {name} 3f2a9c1e", WAITING if name in ("log", "move") else ENDINGS
    )
    parser.add_argument("id", metavar="ID", nargs=nargs, help="id of a job, or its first characters")
    parser.set_defaults(action=action)
    return parser


def _list(workspace: Workspace, options: Any) -> int:
    if options.json:
        return _list_json(workspace)
    lines, broken = _lines(workspace)
    if not lines and not broken:
        print(f"No jobs in {workspace.root}. Start some with `scalebook notebook run`, or with Run in the app.")
        return 0
    rows = [("ID", "STATE", "PROGRESS", "LEFT", "RUN", ""), *map(_row, lines)]
    print("\n".join(terminal.aligned(rows)))
    for error in broken:
        print(f"broken: {error}")
    return 0


def _list_json(workspace: Workspace) -> int:
    reasons = waiting_reasons(workspace)
    jobs, broken = list(reversed(job_requests.all_jobs(workspace))), job_requests.broken_jobs(workspace)
    listed = {job.id for job in jobs}
    lost = [
        error
        for error in broken
        if error.path.parent.name not in listed and error.path.name == JobFolder.FILES[JobRequest]
    ]
    facts = [{"id": error.path.parent.name, "state": "broken", "broken": str(error)} for error in lost]
    print(json.dumps([*facts, *(_facts(job, reasons) for job in jobs)], indent=1))
    return 0


@dataclass(frozen=True)
class JobLine:
    """A line of the list. `stamp`, as from `job_requests.stamps`: of the records that it was made of."""

    stamp: str
    created: float
    id: str
    state: str
    name: str
    words: str
    fraction: float | None = None
    left_s: float | None = None


@dataclass(frozen=True)
class KeptLines:
    """`cache/jobs.json`: the lines of the jobs that have ended. Reading all records of 5,000 jobs takes a second."""

    lines: list[JobLine]


def _lines(workspace: Workspace) -> tuple[list[JobLine], list[BrokenRecord]]:
    """The lines of all jobs, the newest last, and the records that cannot be read."""
    file, jobs, reasons = workspace.cache / "jobs.json", workspace.jobs, waiting_reasons(workspace)
    before = {line.id: line for line in (records.peek(file, KeptLines) or KeptLines([])).lines}
    lines: list[JobLine] = []
    ended: list[JobLine] = []
    broken: list[BrokenRecord] = []
    for name, stamp in job_requests.stamps(workspace).items():
        line = before.get(name)
        if line is None or line.stamp != stamp:
            job = JobFolder(jobs / name)
            errors = job.broken()
            broken += errors
            try:
                line = _line(job, stamp, reasons)
            except (FileNotFoundError, BrokenRecord):
                continue  # deleted meanwhile; or `errors` has it
            if not errors and line.state in ENDED and job.result() is not None:
                ended.append(line)
        else:
            ended.append(line)
        lines.append(line)
    if ended != list(before.values()):
        with suppress(OSError):  # the list is shown all the same
            records.save(file, KeptLines(ended))
    return sorted(lines, key=lambda line: (line.created, line.id)), broken


def _line(job: JobFolder, stamp: str, reasons: dict[str, str]) -> JobLine:
    request, state, progress, result = job.request(), job.state(), job.progress(), job.outcome()
    words = (reasons.get(job.id) or job.stands_still() if result is None else result.why) or job.lost_words()
    fraction = 1.0 if state == "finished" else progress.fraction if progress else None
    left_s = progress.left_s if progress and state == "running" else None
    return JobLine(stamp, request.created, job.id, state, request.title, words, fraction, left_s)


def _facts(job: JobFolder, reasons: dict[str, str]) -> dict[str, Any]:
    progress, result = job.progress(), job.result()
    return {
        **asdict(job.request()),
        "state": job.state(),
        "waits": reasons.get(job.id),
        "progress": asdict(progress) if progress else None,
        "result": asdict(result) if result else None,
    }


def _row(line: JobLine) -> tuple[str, str, str, str, str, str]:
    fraction = line.fraction
    done = "" if fraction is None else f"{bar(fraction, sys.stdout.encoding)} {fraction * 100:3.0f} %"
    left = "" if line.left_s is None else roughly(line.left_s)
    return (line.id[:8], line.state, done, left, one_line(line.name, LONGEST_KEY), one_line(line.words))


def _log(workspace: Workspace, options: Any) -> int:
    """Print a job's log. On several nodes, lines of the other nodes begin with their names. A terminal shows escape
    sequences as text; a file or a pipe gets the job's output unchanged."""
    job = job_requests.find(workspace, options.id)
    positions: dict[str, int] = {}
    if options.follow:
        _say_silence(workspace)
    while True:
        ended = job.state() in ENDED  # asked before reading, so that the last lines are not missed
        for machine, part in {"": job, **part_folders(job)}.items():
            while text := _news(part, machine, positions):
                lines = text.splitlines(keepends=True) if machine else []
                terminal.give("".join(f"{machine}| {line}" for line in lines) or text)
            sys.stdout.flush()
        if ended or not options.follow:
            return 0
        time.sleep(FOLLOW_S)


def _news(job: JobFolder, machine: str, positions: dict[str, int]) -> str:
    """The log's text from the node's position on, at most `PIECE` bytes in whole lines; advances the position."""
    position = positions.get(machine, 0)
    try:
        with safe_reading.opened(job.log) as file:
            file.seek(position)
            read = file.read(PIECE)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise ConfigError(str(job.log), f"cannot be read ({error.strerror})", "Remove it.") from error
    if len(read) == PIECE:
        read = read[: read.rfind(b"\n") + 1] or read
    positions[machine] = position + len(read)
    return read.decode("utf-8", "replace")


def _stop(workspace: Workspace, options: Any) -> int:
    if options.all == (options.id is not None):
        raise ConfigError(
            "jobs stop", "takes either an ID or --all, but not both", "`scalebook jobs list` shows the ids."
        )
    if options.all:
        going = [
            job_
            for job_ in job_requests.all_jobs(workspace)
            if job_.request().trial is None and job_.state() not in ENDED
        ]
        for job_ in going:
            job_requests.stop(job_, "by `scalebook jobs stop`")
        print(f"{len(going)} job{'' if len(going) == 1 else 's'} asked to stop")
        _say_silence(workspace)
        return 0
    job = job_requests.find(workspace, options.id)
    state = job.state()
    job_requests.stop(job, "by `scalebook jobs stop`")
    print(f"{job.id[:8]} has already ended: {state}" if state in ENDED else f"{job.id[:8]} is stopping")
    _say_silence(workspace)
    return 0


def _say_silence(workspace: Workspace) -> None:
    """Warn of a supervisor that does nothing: it then cannot end a job that does not react itself."""
    if silent := supervisor_handle.silence(workspace):
        print(f"scalebook: warning: {silent}", file=sys.stderr)


def _move(workspace: Workspace, options: Any) -> int:
    moved = move(workspace, job_requests.find(workspace, options.id), options.direction)
    print(f"{options.id} {'has moved' if moved else 'is already at that place'}")
    return 0


def _resume(workspace: Workspace, options: Any) -> int:
    job = job_requests.find(workspace, options.id)
    resumed = job_requests.resume(workspace, job, catalogue.describe(workspace))
    print(f"{resumed.id[:8]} resumes from the checkpoint of {options.id}")
    return 0


def _delete(workspace: Workspace, options: Any) -> int:
    job = job_requests.find(workspace, options.id)
    job_requests.delete(workspace, job)
    print(f"{job.id[:8]} is deleted")
    return 0


def _supervise(workspace: Workspace, options: Any) -> int:
    print(
        f"The supervisor of {workspace.root} ends when no jobs are left, or when you press Ctrl+C. Running jobs then "
        "continue.",
        flush=True,
    )
    code = supervise(workspace, JobLimits())
    if code:
        print("A supervisor is already running.")
    return code
