"""`scalebook ask`: answer a question about an experiment, as cells of a notebook."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from scalebook.training.asking import (
    AnswerReader,
    AskFolder,
    Asking,
    Findings,
    NoAnswer,
    all_recipes,
    begun,
    longer_budget,
    preview,
    recipe_named,
    trained_before,
)
from scalebook.training.base import ConfigError, Workspace, processes, roughly, trust
from scalebook.training.base.files import CommandParser, terminal
from scalebook.training.experiments import Description, catalogue, classes, command_line
from scalebook.training.notebook import AnswerCell, Notebook, Stored, answer_body, edit, store
from scalebook.training.tracking import NotebookRuns, RunReader, directions, run_start

PAGE: Final = "tutorial/ask.md"
INTERRUPTED: Final = 130


def parser() -> CommandParser:
    """The parser of `scalebook ask`."""
    listed = "\n".join(f"  {one.name:<16} {one.question}" for one in all_recipes().values())
    parser = CommandParser(
        "scalebook ask",
        about=f"Answer a question about an experiment.\n\n{listed}\n\nThe command adds ordinary cells to the "
        "notebook, runs them and prints the results. After an interruption, run the command again to resume.",
        example="ask more-workers notebooks/first-steps.md --cell classifier-single --budget 10m",
        page=PAGE,
    )
    parser.add_argument("question", metavar="QUESTION", help=f"{', '.join(all_recipes())}")
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE.md", help="notebook that contains the experiment")
    parser.add_argument("--cell", metavar="NAME", help="the experiment; optional if the notebook has only one")
    parser.add_argument("-c", "--config", type=Path, metavar="X.yaml", help="a config, instead of a notebook's cell")
    parser.add_argument(
        "--against", metavar="NAME", help="the second experiment, for a-or-b questions; with -c, the second config"
    )
    parser.add_argument("--budget", default="15m", metavar="TIME", help="time allowed for answering (default: 15m)")
    parser.add_argument(
        "--metric", metavar="NAME", help="metric that decides the question (default: the model's main metric)"
    )
    parser.add_argument(
        "--goal",
        choices=["min", "max"],
        help="say whether higher or lower values of the metric are better, if Scalebook does not know",
    )
    parser.add_argument("--target", type=float, metavar="VALUE", help="value of the metric to reach")
    parser.add_argument(trust.OPTION, action="store_true", help=trust.HELP)
    return parser


def main(argv: Sequence[str]) -> int:
    """Exit code: 0 with an answer, resolved or not; 1 if a run failed that it depends on; 130 interrupted."""
    options = parser().parse_args(argv)
    recipe = recipe_named(options.question)
    if (options.file is None) == (options.config is None):
        raise ConfigError("ask", "needs an experiment", "Use FILE.md --cell NAME, or -c X.yaml.")
    if recipe.needs_against and options.against is None:
        raise ConfigError("--against", "is missing, but this question compares two experiments", "Add --against NAME.")
    workspace = Workspace(options.file.resolve().parent) if options.file else Workspace.find()
    trust.resolve_trust(workspace, options.trust, runs=True)
    description = catalogue.describe(workspace)
    run_start.open_store(workspace)  # made where there is none yet
    stored, cell = _begun(_notebook(workspace, options), options, workspace, description)
    print(f"scalebook: {recipe.question}\nscalebook: answered in {stored.path}, cell {cell.name}")
    try:
        with processes.sigterm_interrupts():
            Asking(stored.path, cell.name, description, _Lines()).run()
    except NoAnswer as error:
        print(f"scalebook: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted. Results so far:")
        _print(stored.path, cell.name, description)
        return INTERRUPTED
    _print(stored.path, cell.name, description)
    return 0


def _notebook(workspace: Workspace, options: argparse.Namespace) -> Stored:
    """The notebook; of a config one of its own, `asked-NAME.md`, made where it is not there."""
    if options.file is not None:
        return store.read(options.file)
    path = workspace.root / f"asked-{options.config.stem}.md"
    if not path.exists():
        workspace.create()
        store.create(workspace, f"asked {options.config.stem}")
    stored = store.read(path)
    nb = stored.notebook
    for config in filter(None, (options.config, options.against and Path(options.against))):
        nb = edit.put_experiment(nb, config.stem, command_line.read(config))
    options.cell, options.against = options.config.stem, options.against and Path(options.against).stem
    return store.save(stored, nb)


def _begun(
    stored: Stored, options: argparse.Namespace, workspace: Workspace, description: Description
) -> tuple[Stored, AnswerCell]:
    """The answer's cell: the one that asks the same, which goes on; else a new one behind its experiment. Prints what
    will be done; ConfigError for what cannot begin."""
    nb = stored.notebook
    name = _experiment(nb, options.cell, "--cell")
    against = _experiment(nb, options.against, "--against") if options.against else None
    budget_s = answer_body.read_budget(options.budget)
    goal: directions.Goal | None = options.goal
    wanted = AnswerCell("", "", options.question, name, against, options.metric or "", goal, options.target, budget_s)
    nb, cell = begun(nb, wanted)
    if not cell.searches:
        reader = NotebookRuns(RunReader(workspace.tracking_uri()), stored.path.name)
        seen = preview(nb, cell, description, trained_before(workspace, reader, stored.path.name, nb, description))
        print("\n".join(f"scalebook: {words}" for words in (seen.plan, *seen.left_out)))
    return store.save(stored, nb), cell


def _experiment(nb: Notebook, name: str | None, option: str) -> str:
    experiments = [cell.name for cell in nb.experiments()]
    if name is None and len(experiments) == 1:
        return experiments[0]
    if name not in experiments:
        what = (
            f"{name} is not an experiment of this notebook"
            if name
            else (f"is missing, and the notebook has {len(experiments)} experiments")
        )
        raise ConfigError(option, what, classes.suggestion(name or "", experiments))
    return name


def _print(path: Path, name: str, description: Description) -> None:
    stored, workspace = store.read(path), Workspace(path.resolve().parent)
    cell = next(one for one in stored.notebook.answers() if one.name == name)
    reader = AnswerReader(
        workspace, NotebookRuns(RunReader(workspace.tracking_uri()), path.name), path.name, stored.notebook, description
    )
    progress = AskFolder.of(workspace, path.name, name).progress()
    answer, spent_s = reader.answer(cell), progress.spent_s if progress else 0.0
    left_out = progress.left_out if progress else ()
    print("\n" + "\n".join([*lines(answer), *left_out, *_next(answer, cell.budget_s, spent_s)]))


def _next(answer: Findings, budget_s: float, spent_s: float) -> list[str]:
    """What to run to go on."""
    again = "run the same command with --budget"
    if answer.more_seeds:
        took = f", about {roughly(answer.more_s)}" if answer.more_s else ""
        budget = answer_body.budget_text(longer_budget(budget_s, spent_s, answer.more_s or 0.0))
        more = (
            f"{answer.more_seeds} seeds of each side would probably resolve the question{took}. For these seeds, "
            f"{again} {budget}."
        )
        return [more]
    if answer.state not in ("not begun", "under way"):
        return []
    if spent_s < budget_s:
        return ["To continue, run the same command."]
    budget = answer_body.budget_text(longer_budget(budget_s, spent_s))
    return [f"The budget of {roughly(budget_s)} is spent. To continue, {again} {budget}."]


def lines(answer: Findings) -> list[str]:
    """The answer as text: its sentence, the table, and what else is known."""
    from scalebook.training.asking import table

    said = (
        [answer.headline, "", *terminal.aligned(table(answer), range(1, 99)), ""] if answer.rows else [answer.headline]
    )
    return [*said, *answer.sentences]


class _Lines:
    """Prints what is done next: on a terminal in one line that changes, else whenever it is something else."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, words: str) -> None:
        if words == self._last:
            return
        live = sys.stdout.isatty()
        if live:
            terminal.overwrite_line(sys.stdout, words[:110])
        elif words.partition(":")[0] != self._last.partition(":")[0]:
            print(f"scalebook: {words}", flush=True)
        self._last = words
