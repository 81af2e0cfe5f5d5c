"""`scalebook notebook`: run, check and export a notebook without a browser."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from scalebook.training.asking import exported_answers
from scalebook.training.base import LONGEST_KEY, ConfigError, Workspace, one_line, processes, trust
from scalebook.training.base.files import CommandParser, add_command, disk_errors
from scalebook.training.cli.notebook_run import NotebookSelection, run, write_tables
from scalebook.training.experiments import Description, catalogue, classes
from scalebook.training.jobs import machines_of
from scalebook.training.notebook import CellProblem, ExperimentCell, Notebook, Stored, check, copy_examples, store
from scalebook.training.notebook.claims import EvidenceReader, claim_table, judge_all, written_tables
from scalebook.training.notebook.export import archive, as_html, as_markdown, gather, verify
from scalebook.training.tracking import NoRuns, RunReader, run_start

PAGE: Final = "tutorial/first-run.md"
EXPORTS: Final = "how-to/export.md"


def main(argv: Sequence[str]) -> int:
    """Exit code: 0 success, 1 if runs did not finish or verdicts differ, 2 for mistakes, 130 interrupted."""
    options = parser().parse_args(argv)
    if options.command == "examples":
        return _copy_examples(options.folder)
    if options.command == "verify":
        return verified(options.file)
    stored = store.read(options.file)
    workspace = Workspace(options.file.resolve().parent)
    trust.resolve_trust(workspace, options.trust, runs=options.command == "run")
    description = catalogue.describe(workspace)
    problems = check(stored.notebook, description, machines_of(workspace))
    if options.command == "export":
        wanted = ARCHIVE if options.archive else options.format
        return export(workspace, stored, description, wanted, options.output)
    if options.command == "check":
        return _checked(options.file, stored.notebook, problems, _recorded(workspace, stored, description))
    if options.command == "tables":
        run_start.open_store(workspace)  # made where there is none yet
        write_tables(options.file, description, sys.stdout)
        return 0
    cells = _chosen(stored.notebook, options.cell)
    if any(problem.problem.severity == "error" and _concerns(problem, options.cell) for problem in problems):
        _print_problems(options.file, [problem for problem in problems if _concerns(problem, options.cell)])
        return 2
    if stored.notebook.searches() and not options.cell:
        _say_searches(options.file, stored.notebook)
    with processes.sigterm_interrupts():
        return run(
            NotebookSelection(options.file, stored.notebook, cells, options.seeds, options.stale),
            description,
            sys.stdout,
        )


def parser() -> CommandParser:
    """The parser of `scalebook notebook`."""
    parser = CommandParser(
        "scalebook notebook",
        about=(
            "Run, check and export a notebook without a browser.\n\n`scalebook search run` runs the searches of a "
            "notebook."
        ),
        example="notebook run notebooks/first-steps.md",
        page=PAGE,
    )
    listed = "run|check|export|verify|tables|examples"
    commands = parser.add_subparsers(dest="command", required=True, metavar=listed)
    about = "Run the experiments of a notebook and print its comparisons and claims."
    runs = add_command(commands, "run", about, "notebook run notebooks/first-steps.md --seeds 3", PAGE)
    about = "Validate every cell of a notebook. Nothing is started."
    checks = add_command(commands, "check", about, "notebook check notebooks/first-steps.md", PAGE)
    about = "Export a notebook with its text, configs, results and charts. Nothing is started."
    exports = add_command(commands, "export", about, "notebook export notebooks/first-steps.md -o report.html", EXPORTS)
    about = (
        "Judge the claims of an archive again from its curves.\n\nThe command also checks that configs, code, "
        "packages and written results agree. Nothing is started.\n\nThe exit code is 1 if anything differs."
    )
    verifies = add_command(commands, "verify", about, "notebook verify first-steps.zip", EXPORTS)
    about = "Write results between the result comments of a notebook. Nothing is started."
    tables = add_command(commands, "tables", about, "notebook tables notebooks/first-steps.md", EXPORTS)
    about = "Copy the notebooks that ship with Scalebook into a folder."
    examples = add_command(commands, "examples", about, "notebook examples notebooks", PAGE)
    examples.add_argument(
        "folder", type=Path, metavar="FOLDER", help="folder, created if it is missing; existing files are kept"
    )
    verifies.add_argument(
        "file", type=Path, metavar="FILE.zip", help="archive made by `export --archive`; none of its code is run"
    )
    for subparser in (runs, checks, exports, tables):
        subparser.add_argument(
            "file", type=Path, metavar="FILE.md", help="the notebook; the folder that contains it is the workspace"
        )
        subparser.add_argument(trust.OPTION, action="store_true", help=trust.HELP)
    runs.add_argument(
        "--cell", action="append", default=[], metavar="NAME", help="run only this experiment; can be repeated"
    )
    runs.add_argument(
        "--seeds",
        type=_positive,
        metavar="N",
        help="number of runs per experiment, instead of the experiment's `repeats`",
    )
    runs.add_argument(
        "--stale",
        action="store_true",
        help="run only the seeds that have not finished with the current config and modules",
    )
    kind = exports.add_mutually_exclusive_group()
    kind.add_argument(
        "--archive", action="store_true", help="write one zip file with every curve, which `verify` reads"
    )
    kind.add_argument(
        "--format", choices=FORMATS, help="html: one file (default); markdown: a file and a folder of pictures"
    )
    exports.add_argument(
        "-o", dest="output", type=Path, metavar="FILE", help="output file (default: next to the notebook)"
    )
    return parser


def _copy_examples(folder: Path) -> int:
    for path, copied in copy_examples(folder).items():
        print(path if copied else f"kept {path}, because it already exists")
    print(f"Open them with: scalebook ui {folder}")
    return 0


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def _checked(path: Path, nb: Notebook, problems: Sequence[CellProblem], recorded: EvidenceReader) -> int:
    judged = judge_all(recorded) if nb.claims() else {}
    problems = [*problems, *written_tables.problems(nb, written_tables.tables(recorded, judged))]
    _print_problems(path, problems)
    if any(problem.problem.severity == "error" for problem in problems):
        return 2
    counts = {
        "experiment": len(nb.experiments()), "search": len(nb.searches()), "claim": len(nb.claims()),
        "comparison": len(nb.comparisons()),
    }  # fmt: skip
    *words, last = [
        f"{count} {kind}{'' if count == 1 else 'es' if kind == 'search' else 's'}"
        for kind, count in counts.items()
        if count or kind in ("experiment", "comparison")
    ]
    print(f"{path}: {', '.join(words)} and {last}, {'no errors' if problems else 'no problems'}")
    for name, judgement in judged.items():
        words = [
            f"{', '.join(claim_table.verdicts(judgement))}.",
            *claim_table.lock_words(judgement),
            *claim_table.outlook(judgement),
        ]
        print(f"{name}: {' '.join(words)}")
    return 0


def _recorded(workspace: Workspace, stored: Stored, description: Description) -> EvidenceReader:
    """The recorded runs of the notebook; creates no store if the workspace has none."""
    there = not run_start.is_embedded(workspace) or workspace.database.exists()
    reader = (RunReader if there else NoRuns)(workspace.tracking_uri())
    return EvidenceReader(workspace, reader, stored.path.name, stored.notebook, description)


def _say_searches(path: Path, nb: Notebook) -> None:
    searches = nb.searches()
    count = "1 search is" if len(searches) == 1 else f"{len(searches)} searches are"
    print(
        f"{count} not run by this command. Use `scalebook search run {path} --cell "
        f"{searches[0].name if len(searches) == 1 else 'NAME'}`."
    )


def _print_problems(path: Path, problems: Sequence[CellProblem]) -> None:
    """Print each problem on standard error as `FILE:LINE: cell: key: message. Remedy`."""
    for problem in problems:
        warning = "warning: " if problem.problem.severity == "warning" else ""
        name = one_line(problem.cell_name, LONGEST_KEY)
        print(f"{one_line(str(path))}:{problem.line}: {warning}{name}: {problem.problem}", file=sys.stderr)


def _chosen(nb: Notebook, names: Sequence[str]) -> list[ExperimentCell]:
    experiments = [cell.name for cell in nb.experiments()]
    for name in names:
        if nb.search(name) is not None:
            what = f"{name} is a search, which `notebook run` does not run"
            raise ConfigError("--cell", what, f"Use `scalebook search run FILE.md --cell {name}`.")
        if name not in experiments and not any(getattr(cell, "name", None) == name for cell in nb.cells):
            raise ConfigError(
                "--cell", f"{name} is not an experiment of this notebook", classes.suggestion(name, experiments)
            )
    cells = [cell for cell in nb.experiments() if not names or cell.name in names]
    if not cells and not names and nb.searches():
        raise ConfigError(
            "notebook", "has only searches, no experiments", "Use `scalebook search run FILE.md --cell NAME`."
        )
    if not cells and not names:
        raise ConfigError("notebook", "has no experiments", "Add a cell that begins with ```yaml experiment=NAME.")
    return cells


def _concerns(problem: CellProblem, names: Sequence[str]) -> bool:
    return not names or problem.cell_name in names


FORMATS: Final = ("html", "markdown")
ARCHIVE: Final = "archive"
MARK: Final = b"exported by Scalebook on "
"""In every exported file: a file that contains it may be replaced."""


def export(
    workspace: Workspace, stored: Stored, description: Description, wanted: str | None, output: Path | None
) -> int:
    """Write the export and print its path. `wanted` is one of FORMATS, or ARCHIVE; None follows the suffix of `output`.

    ConfigError if `output` cannot be written, or would replace a file that is not an export.
    """
    kind = wanted or ("markdown" if output is not None and output.suffix.lower() == ".md" else "html")
    path = output or _beside(stored.path, kind)
    _refuse(path, given=output is not None)
    run_start.open_store(workspace)  # made where there is none yet
    if kind == ARCHIVE:
        content = archive(workspace, RunReader(workspace.tracking_uri()), stored, description)
        with disk_errors(path.parent):
            _write(path, content, workspace)
        print(path)
        return 0
    reader = RunReader(workspace.tracking_uri())
    document = gather(workspace, reader, stored, description, exported_answers(workspace, reader, stored, description))
    with disk_errors(path.parent):
        if kind == "html":
            _write(path, as_html(document), workspace)
        else:
            pictures = path.with_name(f"{path.stem}-pictures")
            made = as_markdown(document, pictures.name)
            _write(path, made.text, workspace)
            for old in pictures.glob("chart-*.svg"):
                old.unlink()
            for name, svg in made.pictures.items():
                _write(pictures / name, svg, workspace)
    print(path)
    return 0


MOST_LINES: Final = 50
"""Of the differences, and of the notes, that `verify` prints."""


def verified(path: Path) -> int:
    """Print the claims of an archive, how it differs from what its curves say, and what was not checked; 1 if it
    differs."""
    archived, differences, notes, unchecked, fingerprint = verify(path)
    for name, claim in archived.items():
        locked = f" (for the claim as locked by its first run: {claim.locked})" if claim.locked else ""
        print(one_line(f"{name}: {claim.verdict}{locked}: {claim.statement}"))
    _print_lines(notes)
    _print_lines([f"DIFFERS: {difference}" for difference in differences])
    count = f"{len(archived)} claim{'' if len(archived) == 1 else 's'}"
    print(
        f"{count} judged again from the archived curves. Configs, code, packages, curves and written results were "
        "compared: "
        + (f"{len(differences)} difference{'' if len(differences) == 1 else 's'}" if differences else "no difference")
    )
    print(f"Fingerprint: {fingerprint}")
    print("Not checked:")
    _print_lines([f"  - {sentence}" for sentence in unchecked])
    return 1 if differences else 0


def _print_lines(lines: Sequence[str]) -> None:
    for line in lines[:MOST_LINES]:
        print(one_line(line, 2000))
    if len(lines) > MOST_LINES:
        print(f"and {len(lines) - MOST_LINES:,} more")


def _beside(notebook: Path, kind: str) -> Path:
    """The default path of an export. Markdown gets its own folder: beside the notebook it would count as one."""
    if kind in ("html", ARCHIVE):
        return notebook.with_suffix(".html" if kind == "html" else ".zip")
    return notebook.with_name(f"{notebook.stem}-export") / notebook.name


def _refuse(path: Path, *, given: bool) -> None:
    if path.is_dir():
        raise ConfigError("-o", f"is {path}, a folder", "Use the path of a file.")
    if given and not path.parent.is_dir():
        raise ConfigError("-o", f"is {path}, but {path.parent} does not exist", "Create the folder first.")
    if path.exists() and MARK not in path.read_bytes():
        raise ConfigError("-o", f"would replace {path}, which is not an exported file", "Use another file name.")


def _write(path: Path, content: str | bytes, workspace: Workspace) -> None:
    """Write a file that the users of the workspace's folder can read, like a notebook: the umask of commands is meant
    for the hidden folder."""
    mode = workspace.root.stat().st_mode
    if not path.parent.is_dir():
        path.parent.mkdir()
        path.parent.chmod(mode & 0o755)
    with path.open("wb") as file:
        os.fchmod(file.fileno(), mode & 0o644)
        file.write(content if isinstance(content, bytes) else content.encode())
