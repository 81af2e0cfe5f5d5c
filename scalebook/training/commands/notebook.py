"""`scalebook notebook`: run a notebook's experiments headless, check its cells, export it, or copy those that ship.

Its searches are run by `scalebook search run`.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from scalebook.training.commands.notebook_export import FORMATS, export
from scalebook.training.commands.notebook_run import Wanted, run
from scalebook.training.config.catalogue import describe
from scalebook.training.config.classes import suggestion
from scalebook.training.errors import LONGEST_KEY, ConfigError, one_line
from scalebook.training.jobs.gpu_problems import machines_of
from scalebook.training.jobs.interrupting import sigterm_interrupts
from scalebook.training.notebook import store
from scalebook.training.notebook.cells import ExperimentCell, Notebook
from scalebook.training.notebook.check import CellProblem, check
from scalebook.training.notebook.examples import copy_examples
from scalebook.training.trust import HELP, OPTION, settle
from scalebook.training.workspace import Workspace


def main(argv: Sequence[str]) -> int:
    """Exit code: 0 all runs finished (or nothing is wrong), 1 some did not, 2 mistakes, 130 interrupted."""
    options = _parser().parse_args(argv)
    if options.command == "examples":
        return _copy_examples(options.folder)
    stored = store.read(options.file)
    workspace = Workspace(options.file.resolve().parent)
    settle(workspace, options.trust, runs=options.command == "run")
    description = describe(workspace)
    problems = check(stored.notebook, description, machines_of(workspace))
    if options.command == "export":
        return export(workspace, stored, description, options.format, options.output)
    if options.command == "check":
        return _checked(options.file, stored.notebook, problems)
    cells = _chosen(stored.notebook, options.cell)
    if any(problem.problem.severity == "error" and _concerns(problem, options.cell) for problem in problems):
        _print_problems(options.file, [problem for problem in problems if _concerns(problem, options.cell)])
        return 2
    if stored.notebook.searches() and not options.cell:
        _say_searches(options.file, stored.notebook)
    with sigterm_interrupts():
        return run(Wanted(options.file, stored.notebook, cells, options.seeds, options.stale), description, sys.stdout)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scalebook notebook", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="run|check|export|examples")
    runs = commands.add_parser("run", help="run all experiments or some, and print the comparisons")
    examples = commands.add_parser("examples", help="copy the notebooks that come with Scalebook into a folder")
    examples.add_argument("folder", type=Path, metavar="FOLDER", help="created if missing; existing files stay")
    checks = commands.add_parser("check", help="validate every cell; run nothing")
    exports = commands.add_parser("export", help="write one file with text, configs, results and charts; run nothing")
    for subparser in (runs, checks, exports):
        subparser.add_argument("file", type=Path, metavar="FILE.md", help="the notebook; its folder is the workspace")
        subparser.add_argument(OPTION, action="store_true", help=HELP)
    runs.add_argument("--cell", action="append", default=[], metavar="NAME", help="only this experiment (repeatable)")
    runs.add_argument("--seeds", type=_positive, metavar="N", help="runs of each experiment, instead of its `repeats`")
    runs.add_argument(
        "--stale", action="store_true", help="only seeds not finished with the present config and modules"
    )
    exports.add_argument("--format", choices=FORMATS, help="html, one file (the default); markdown, pictures beside it")
    exports.add_argument(
        "-o", dest="output", type=Path, metavar="FILE", help="output file (default: next to the notebook)"
    )
    return parser


def _copy_examples(folder: Path) -> int:
    for path, copied in copy_examples(folder).items():
        print(path if copied else f"kept {path}: it already exists")
    print(f"Open them with: scalebook ui {folder}")
    return 0


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def _checked(path: Path, nb: Notebook, problems: Sequence[CellProblem]) -> int:
    _print_problems(path, problems)
    if any(problem.problem.severity == "error" for problem in problems):
        return 2
    experiments, comparisons, claims = len(nb.experiments()), len(nb.comparisons()), len(nb.claims())
    count = len(nb.searches())
    searches = f", {count} search{'es' if count > 1 else ''}" if count else ""
    claimed = f", {claims} claim{'s' if claims > 1 else ''}" if claims else ""
    print(f"{path}: {experiments} experiments{searches}{claimed} and {comparisons} comparisons, nothing wrong")
    return 0


def _say_searches(path: Path, nb: Notebook) -> None:
    searches = nb.searches()
    count = "1 search is" if len(searches) == 1 else f"{len(searches)} searches are"
    print(f"{count} run by `scalebook search run {path} --cell {searches[0].name if len(searches) == 1 else 'NAME'}`.")


def _print_problems(path: Path, problems: Sequence[CellProblem]) -> None:
    """One line each, `FILE:LINE: cell: key: message. Remedy`, on standard error."""
    for problem in problems:
        warning = "warning: " if problem.problem.severity == "warning" else ""
        name = one_line(problem.cell_name, LONGEST_KEY)
        print(f"{one_line(str(path))}:{problem.line}: {warning}{name}: {problem.problem}", file=sys.stderr)


def _chosen(nb: Notebook, names: Sequence[str]) -> list[ExperimentCell]:
    known = [cell.name for cell in nb.experiments()]
    for name in names:
        if nb.search(name) is not None:
            what = f"{name} is a search, which `notebook run` does not run"
            raise ConfigError("--cell", what, f"Use `scalebook search run FILE.md --cell {name}`.")
        if name not in known and not any(getattr(cell, "name", None) == name for cell in nb.cells):
            raise ConfigError("--cell", f"{name} is not an experiment of this notebook", suggestion(name, known))
    cells = [cell for cell in nb.experiments() if not names or cell.name in names]
    if not cells and not names and nb.searches():
        raise ConfigError(
            "notebook", "has only searches, no experiments", "Use `scalebook search run FILE.md --cell NAME`."
        )
    if not cells and not names:
        raise ConfigError("notebook", "has no experiments", "Write a cell that begins with ```yaml experiment=NAME.")
    return cells


def _concerns(problem: CellProblem, names: Sequence[str]) -> bool:
    return not names or problem.cell_name in names
