"""`scalebook search`: run a search without a browser, look at it, resume it; and two tests that need no study."""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TextIO

from scalebook.training.base import LONGEST_KEY, ConfigError, Workspace, one_line, processes, roughly, trust
from scalebook.training.base.files import CommandParser, add_command, terminal
from scalebook.training.cli.notebook_run import say_claims
from scalebook.training.cli.run_lines import bar
from scalebook.training.experiments import Description, Experiment, catalogue, classes, command_line
from scalebook.training.experiments.search import SearchSpec, search_problems, summary, trials_wanted
from scalebook.training.jobs import SupervisorKeeper, has_environment, supervisor_handle
from scalebook.training.notebook import TABLE_WIDTH, ExperimentCell, store
from scalebook.training.notebook.claims import claim_tags
from scalebook.training.planner.tuning import largest_batch, rates
from scalebook.training.search import SearchFolder, SearchProgress, search_folder, search_requests
from scalebook.training.search.study import STATES, TrialRecord, at_rest, best, pareto, read_study

TESTS: Final = {"rates": rates, "largest-batch": largest_batch}
"""Subcommands that run a test; each has its own parser."""
PAGE: Final = "tutorial/first-search.md"


def main(argv: Sequence[str]) -> int:
    """Exit code: 0 if the search finished, 1 if it failed, 2 for mistakes, 130 interrupted."""
    if argv and argv[0] in TESTS:
        code: int = TESTS[argv[0]].main(argv[1:])
        return code
    options = parser().parse_args(argv)
    action: Callable[[Any], int] = options.action
    file = getattr(options, "file", None)
    trust.resolve_trust(
        Workspace(file.resolve().parent) if file else Workspace.find(), options.trust, runs=action in (_run, _resume)
    )
    return action(options)


def parser() -> CommandParser:
    """The parser of `scalebook search`; the `TESTS` have their own."""
    parser = CommandParser(
        "scalebook search",
        about="Run a search over a config, show its state, and resume it.",
        example="search run notebooks/batch-size.md --cell classifier-map",
        page=PAGE,
    )
    commands = parser.add_subparsers(required=True, metavar="run|check|list|show|resume|stop|rates|largest-batch")
    about = "Run a search of a notebook or of a file.\n\nA search that was interrupted continues."
    run = add_command(commands, "run", about, "search run notebooks/batch-size.md --cell classifier-map", PAGE)
    about = "Validate a search and print how many runs it would start. Nothing is started."
    check = add_command(commands, "check", about, "search check notebooks/batch-size.md --cell classifier-map", PAGE)
    for subparser, action in ((run, _run), (check, _check)):
        subparser.add_argument(
            "file",
            nargs="?",
            type=Path,
            metavar="FILE.md",
            help="the notebook; the folder that contains it is the workspace",
        )
        subparser.add_argument(
            "--cell", metavar="NAME", help="the search's cell; optional if the notebook has only one search"
        )
        subparser.add_argument("-c", "--config", type=Path, metavar="SEARCH.yaml", help="file that contains the search")
        subparser.add_argument(
            "--trials", type=int, metavar="N", help="number of trials, instead of the number that the search sets"
        )
        subparser.set_defaults(action=action)
    add_command(commands, "list", "List the searches of this workspace.", "search list", PAGE).set_defaults(
        action=_list
    )
    show = add_command(commands, "show", "Show the best trials and the failures of a search.", "search show 3f2a", PAGE)
    show.set_defaults(action=_show)
    resume = add_command(commands, "resume", "Resume an ended search.", "search resume 3f2a --trials 200", PAGE)
    resume.set_defaults(action=_resume)
    about = "Stop a search and its running trials.\n\nThese trials run again when the search is resumed."
    stop = add_command(commands, "stop", about, "search stop 3f2a", PAGE)
    stop.set_defaults(action=_stop)
    for subparser in (show, resume, stop):
        subparser.add_argument("id", metavar="ID", help="name of a search, or the first characters of its id")
    resume.add_argument("--trials", type=int, metavar="N", help="new total number of trials")
    for subparser in commands.choices.values():
        subparser.add_argument(trust.OPTION, action="store_true", help=trust.HELP)
    for name, test in TESTS.items():
        own = test.parser()
        add_command(commands, name, own.about, own.example, own.page)
    return parser


def _run(options: Any) -> int:
    workspace, name, body, base, description = _wanted(options)
    notebook = options.file.name if options.file else None
    recorded = claim_tags(store.read(options.file).notebook, name, description) if notebook else {}
    folder = search_requests.start(
        workspace,
        body,
        base,
        name=name,
        notebook=notebook,
        cell=name if notebook else None,
        description=description,
        recorded=recorded,
    )
    code = _follow(folder, description)
    if options.file is not None:
        say_claims(options.file, store.read(options.file).notebook, description, {name}, sys.stdout)
    return code


def _follow(folder: SearchFolder, description: Description) -> int:
    with processes.sigterm_interrupts():
        return follow(folder, folder.spec(description), sys.stdout)


def _check(options: Any) -> int:
    from scalebook.training.experiments.search import cost, read_search
    from scalebook.training.jobs import this_machine

    _, name, body, base, description = _wanted(options)
    spec = read_search(body, base, description)
    machine = this_machine()
    for problem in search_requests.lacking_gpus(spec, [machine]):
        raise ConfigError.of(problem)
    expected = cost(spec, len(machine.cores), None, len(machine.gpus))
    print(f"{name}: OK. The search would start {expected.runs} runs, {expected.side_by_side} at a time.")
    return 0


def _wanted(options: Any) -> tuple[Workspace, str, dict[str, Any], Experiment | None, Description]:
    """Workspace, name, body, base and description of the search that the command line names. Prints all
    problems, and raises the first error as a ConfigError."""
    if (options.file is None) == (options.config is None):
        raise ConfigError("search", "needs a search", "Use FILE.md --cell NAME, or -c SEARCH.yaml.")
    cell: ExperimentCell | None = None
    if options.config is not None:
        workspace = Workspace.find()
        name, body = options.config.stem, command_line.read(options.config)
        if isinstance(body.get("config"), str):
            body = {**body, "config": command_line.read(options.config.parent / body["config"])}
    else:
        workspace = Workspace(options.file.resolve().parent)
        name, body, cell = _cell(options)
    if options.trials is not None:
        body = {**body, "trials": options.trials}
    description = catalogue.describe(workspace)
    base = cell.experiment(description) if cell else None
    problems = search_problems(body, base, description)
    for problem in problems:
        if problem.severity == "warning":
            print(f"scalebook: warning: {problem}", file=sys.stderr)
    wrong = [problem for problem in problems if problem.severity == "error"]
    for problem in wrong[1:]:
        print(f"scalebook: error: {problem}", file=sys.stderr)
    if wrong:
        raise ConfigError.of(wrong[0])
    return workspace, name, body, base, description


def _cell(options: Any) -> tuple[str, dict[str, Any], ExperimentCell | None]:
    notebook = store.read(options.file).notebook
    searches = [search.name for search in notebook.searches()]
    if options.cell is None and len(searches) != 1:
        fix = (
            f"Add --cell NAME, where NAME is one of {', '.join(searches)}."
            if searches
            else "Add a cell that begins with ```yaml search=NAME."
        )
        raise ConfigError("--cell", f"is missing, and the notebook has {len(searches)} searches", fix)
    cell = notebook.search(options.cell or searches[0])
    if cell is None:
        raise ConfigError(
            "--cell", f"{options.cell} is not a search of this notebook", classes.suggestion(options.cell, searches)
        )
    return cell.name, dict(cell.body), notebook.experiment(str(cell.body.get("experiment", "")))


def _list(options: Any) -> int:
    workspace = Workspace.find()
    searches, broken = search_folder.all_searches(workspace), search_folder.broken_searches(workspace)
    if not searches and not broken:
        print(f"No searches in {workspace.root}. `scalebook search run` or the app's Search page creates one.")
        return 0
    rows = [("ID", "STATE", "TRIALS", "BEST", "LEFT", "SEARCH")]
    for search in reversed(searches):
        progress, request = search.progress(), search.request()
        best = f"{progress.best:.4g}" if progress and progress.best is not None else ""
        left = roughly(progress.left_s) if progress and progress.left_s and search.state() == "running" else ""
        done = f"{progress.done}/{progress.trials}" if progress else ""
        where = f"{request.name} ({request.notebook})" if request.notebook else request.name
        rows.append((search.id[:8], search.standing(), done, best, left, one_line(where, LONGEST_KEY)))
    for line in terminal.aligned(rows):
        print(line[:TABLE_WIDTH])
    for error in broken:
        print(f"broken: {error}")
    return 0


def _show(options: Any) -> int:
    folder = search_requests.find(Workspace.find(), options.id)
    print(results(folder, folder.spec(catalogue.describe(folder.workspace))))
    return 0


def _resume(options: Any) -> int:
    folder = search_requests.find(Workspace.find(), options.id)
    description = catalogue.describe(folder.workspace)
    if not has_environment(folder.path):
        print("scalebook: new trials use the environment variables of this shell")
    return _follow(search_requests.resume(folder, description, options.trials), description)


def _stop(options: Any) -> int:
    folder = search_requests.find(Workspace.find(), options.id)
    search_requests.stop(folder)
    print(f"scalebook: stopping {folder.request().name}")
    if silent := supervisor_handle.silence(folder.workspace):
        print(f"scalebook: warning: {silent}", file=sys.stderr)
    return 0


LOOK_EVERY_S: Final = 0.25
PLAIN_EVERY_S: Final = 10.0
STOP_DEADLINE_S: Final = 90.0
SILENCE_S: Final = 1800.0
"""Watching ends if the driver shows no progress for so long."""
SHOWN: Final = 10
"""Trials in the table."""
INTERRUPTED: Final = 130


def follow(folder: SearchFolder, spec: SearchSpec, out: TextIO) -> int:
    """Watch the search until it ends; 0 if it finished, 1 if not, 130 when interrupted, which stops the search."""
    name = folder.request().name
    say(out, f"scalebook: search {folder.id[:8]}, {name}: {trials_wanted(spec)} trials over {_space(spec)}")
    try:
        moved = _watch(folder, out)
    except KeyboardInterrupt:
        return _interrupted(folder, out)
    say(out, f"\n{results(folder, spec)}")
    result = folder.result()
    if not moved or result is None:
        say(
            out,
            f"Nothing happened for {roughly(SILENCE_S)}. Use `scalebook search list` to see the state of the search.",
        )
        return 1
    say(out, f"{name} {result.status}: {result.cause}{f'. {result.advice}' if result.advice else ''}")
    return 0 if result.status == "finished" else 1


def _watch(folder: SearchFolder, out: TextIO) -> bool:
    """Watch until the search ends; False without progress for SILENCE_S. Replaces a supervisor that dies, which in turn
    restarts the driver."""
    live = out.isatty()
    printed_at, seen, moved = 0.0, 0.0, time.monotonic()
    keeper = SupervisorKeeper(folder.workspace)
    while folder.state() not in search_folder.ENDED:
        now = time.monotonic()
        keeper.has_changed()
        if news := keeper.news():
            say(out, ("\n" if live else "") + f"scalebook: {news}")
        progress = folder.progress()
        if progress is not None and progress.time != seen:
            seen, moved = progress.time, now
            if live:
                terminal.overwrite_line(out, line(progress))
            elif now - printed_at > PLAIN_EVERY_S:
                printed_at = now
                say(out, line(progress))
        if now - moved > SILENCE_S:
            return False
        time.sleep(LOOK_EVERY_S)
    return True


def line(progress: SearchProgress) -> str:
    """`████------  42 of 100 trials  best 0.123 (trial 17)  2 run  3 min left  memory ends at 512 ...`"""
    words = [bar(progress.done / max(1, progress.trials), "utf8"), f"{progress.done} of {progress.trials} trials"]
    if progress.best is not None:
        words.append(f"best {progress.best:.4g} (trial {progress.best_trial})")
    words.append(f"{progress.running} running")
    if progress.left_s is not None:
        words.append(f"{roughly(progress.left_s)} left")
    return "  ".join([*words, progress.note] if progress.note else words)


def _interrupted(folder: SearchFolder, out: TextIO) -> int:
    say(out, "\nInterrupted: stopping the search (press Ctrl+C again to exit now; the driver then stops the trials).")
    search_requests.stop(folder)
    if silent := supervisor_handle.silence(folder.workspace):
        say(out, f"scalebook: {silent}")
    deadline = time.monotonic() + STOP_DEADLINE_S
    try:
        while time.monotonic() < deadline and folder.state() not in search_folder.ENDED:
            time.sleep(LOOK_EVERY_S)
    except KeyboardInterrupt:
        say(out, "The driver stops the remaining trials.")
        return INTERRUPTED
    again = f"To continue, use `scalebook search resume {folder.id[:8]}`."
    say(out, f"{'Stopped' if folder.state() in search_folder.ENDED else 'The search is still stopping'}. {again}")
    return INTERRUPTED


def results(folder: SearchFolder, spec: SearchSpec) -> str:
    """The number of trials in each state, and a table of the best."""
    folder.require_trust(reading=True)
    request = folder.request()
    records = read_study(request.storage, request.study, spec)
    if folder.state() in search_folder.ENDED:
        records = at_rest(records)
    counts = [(state, sum(1 for record in records if record.state == state)) for state in STATES]
    ended_how = ", ".join(f"{number} {state}" for state, number in counts if number)
    return "\n".join([f"{request.name}: {ended_how or 'no trial yet'}", *_table(records, spec), *_failures(records)])


def _table(records: Sequence[TrialRecord], spec: SearchSpec) -> list[str]:
    finished = [record for record in records if record.state == "finished"]
    if not finished:
        return []
    if len(spec.objectives) > 1:
        ranked, title = pareto(records, spec)[:SHOWN], "the Pareto front"
    else:
        sign = 1 if spec.objectives[0].lower else -1
        ranked, title = sorted(finished, key=lambda record: sign * record.values[0])[:SHOWN], "the best"
    head = ("trial", *(objective.name for objective in spec.objectives), "seconds", "point")
    rows = [head, *(_row(record, spec) for record in ranked)]
    lines = terminal.aligned(rows, range(len(head) - 1))
    winner = best(records, spec)
    return ["", f"{title} of {len(finished)}:", *lines, ""] if winner else lines


def _row(record: TrialRecord, spec: SearchSpec) -> tuple[str, ...]:
    spread = f" ± {record.spread:.2g}" if record.spread is not None else ""
    values = [f"{value:.4g}" for value in record.values]
    seconds = f"{record.seconds:.1f}" if record.seconds is not None else ""
    return (str(record.number), f"{values[0]}{spread}", *values[1:], seconds, summary(spec, record.point))


def _failures(records: Sequence[TrialRecord]) -> list[str]:
    """A line for each kind of failure, with an example."""
    kinds: dict[str, list[TrialRecord]] = {}
    for record in records:
        if record.state in ("infeasible", "failed"):
            kinds.setdefault(record.failure or record.state, []).append(record)
    return [f"{len(failed)} {kind}, e.g. trial {failed[0].number}: {failed[0].cause}" for kind, failed in kinds.items()]


def _space(spec: SearchSpec) -> str:
    return " x ".join(dimension.name for dimension in spec.space)


def say(out: TextIO, text: str) -> None:
    out.write(f"{text}\n")
    out.flush()
