"""`scalebook plan`: where adding workers stops helping, why, and what would move it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from scalebook.training.base import ConfigError, Workspace, safe_path, trust
from scalebook.training.base.files import HELP, CommandParser
from scalebook.training.cli.plan_chart import check_figure
from scalebook.training.experiments import (
    CommandLine,
    Description,
    Experiment,
    catalogue,
    classes,
    command_line,
    require,
)
from scalebook.training.jobs import this_machine
from scalebook.training.notebook import store
from scalebook.training.planner import (
    COMPARED,
    MOST_TRAINED,
    PER_CORE,
    USUAL,
    Question,
    numbers,
    rules,
    usual_workers,
)
from scalebook.training.planner.tuning import number, prepared, whole_number
from scalebook.training.pricing import links, load_profile
from scalebook.training.tracking import names

CELL: Final = "--cell"
TABLE: Final = "--table"
OPTIONS: Final = {
    "--profile": ("FILE", "read the measurements from this profile instead of measuring"),
    "--save-profile": ("FILE", "write the measurements to this profile"),
    "--workers": (
        "N,N",
        (
            f"numbers of workers to simulate (default: 1,2,4,..., up to {PER_CORE} per core if workers share a "
            f"machine, or up to {USUAL} if each worker has a separate machine)"
        ),
    ),
    "--strategies": (
        "NAME,NAME",
        (
            f"strategies to compare at the config's number of workers (default: {COMPARED}). A strategy is ddp, fsdp, "
            "a parameter-server rule or a peer exchange. A rule can be followed by its first argument (bounded:4, "
            "sync:1), and an exchange by its topology (d_psgd:exponential, ad_psgd:ring)"
        ),
    ),
    "--shards": ("N,N", "numbers of shards to simulate (default: the number in the config, or 1 with --profile)"),
    "--links": (
        "NAME,NAME",
        (
            f"links to simulate: {', '.join(links.NETWORKS)}, or {links.OWN} (default) for the links of the profile. "
            f"After a measurement on this machine, workers on {links.OWN} share its cores. With any other link, each "
            "worker has a separate machine"
        ),
    ),
    "--split": (
        "N",
        (
            "also estimate every split of the model over N workers (tensor, shard, pipeline stages, data) and print "
            "the best three; uses the layers and memory of the profile"
        ),
    ),
    "--price": (
        "HOUR",
        (
            "price of one worker per hour, in any currency; also prints the tables, with a column for the cost of a "
            "million samples"
        ),
    ),
    "--target": (
        "VALUE",
        (
            "also train the config with virtual workers until the metric reaches this value, and print the time that "
            f"this takes (updates times seconds per update). There are up to {MOST_TRAINED} virtual workers, or as "
            "many as --workers sets. Training uses the first rule, link and number of shards"
        ),
    ),
    "--metric": ("NAME", "metric for --target (default: the main validation metric of the model)"),
    "--seeds": ("N", "number of runs for each number of workers, for --target (default: 1)"),
    "--json": ("FILE", "write the answer to this file as JSON"),
    "--figure": ("FILE", "write the chart of samples/s by number of workers to this file"),
}
"""Each with the word for its value, and its help."""


def parser() -> CommandParser:
    """The parser of `scalebook plan`."""
    parser = CommandParser(
        "scalebook plan",
        usage="scalebook plan -c FILE [options] [--KEY VALUE ...]\n"
        "       scalebook plan FILE.md --cell NAME [options] [--KEY VALUE ...]\n"
        "       scalebook plan --profile PROFILE.yaml [options]",
        about="Predict the speed of a config with more workers.\n\nThe command first measures the config on this "
        "machine, in less than 30 s. It measures the time per gradient and the spread of that time, the bytes "
        "per push and per pull, and the servers' time per push. With --profile it reads these figures from a "
        "file. It then simulates the timing of runs, without gradients, and prints the best strategies, how "
        "many workers still help, what limits the speed, and what would raise this limit.\n\nThe rule, shards, "
        "codecs, damping and local steps come from the config unless an option sets others. The command rejects "
        "settings that it cannot plan.\n\nTo set keys of the config, add --KEY VALUE.",
        example="plan -c x.yaml --workers 1,2,4,8 --links own,10gbe",
        page="tutorial/how-many-workers.md",
    )
    for option, (metavar, words) in OPTIONS.items():
        parser.add_argument(option, metavar=metavar, help=words)
    parser.add_argument(
        TABLE,
        action="store_true",
        help=(
            "also print the accuracy of earlier plans, and a table for each strategy with a row for each number of "
            "workers. Columns are rates, staleness, load, and memory (weights, gradients and optimizer state, without "
            "activations)"
        ),
    )
    parser.add_argument(CELL, metavar="NAME", help="the experiment; optional if the notebook has only one")
    parser.add_argument(*command_line.CONFIG_OPTIONS, metavar="FILE", help="config to measure")
    parser.add_argument(trust.OPTION, action="store_true", help=trust.HELP)
    return parser


def main(argv: Sequence[str]) -> int:
    """Exit code: 0 with an answer, 1 if measuring failed, 130 interrupted. ConfigError before anything starts."""
    if argv and not argv[0].startswith("-"):
        return _of_cell(Path(argv[0]), argv[1:])
    if any(word.partition("=")[0] in command_line.CONFIG_OPTIONS for word in argv) or not set(argv) - {trust.OPTION}:
        return _of_config(argv)
    if set(argv) & set(HELP):
        parser().print_help()
        return 0
    options = _options(argv)
    if "--profile" not in options:
        raise ConfigError(
            "plan", "needs a config or a profile", "Add -c FILE for a config, or --profile FILE for a profile."
        )
    question = _question(options)
    if "--target" in options:
        raise ConfigError("--target", "needs a model to train", "Add -c FILE.")
    profile = load_profile(Path(options["--profile"] or ""))
    if "--workers" not in options:
        question = replace(question, workers=usual_workers(profile.gpus or profile.cores, question.networks))
    with safe_path.importing():
        from scalebook.training.cli import plan_run
    plan_run.answered(profile, question, options)
    return 0


def _of_config(argv: Sequence[str]) -> int:
    begun = prepared(argv, parser(), queued=False)
    if isinstance(begun, int):
        return begun
    if CELL in begun[2].options:
        raise ConfigError(CELL, "needs a notebook", f"Use FILE.md {CELL} NAME.")
    return _measured(*begun)


def _of_cell(path: Path, argv: Sequence[str]) -> int:
    workspace = Workspace(path.resolve().parent)
    trust.resolve_trust(workspace, trust.OPTION in argv, runs=True)
    description = catalogue.describe(workspace)
    line = command_line.parse(argv, description, parser().takes_value())
    if line.options.keys() & set(HELP):
        parser().print_help()
        return 0
    notebook, name = store.read(path).notebook, line.options.get(CELL)
    experiments = [cell.name for cell in notebook.experiments()]
    cell = notebook.experiment(name or (experiments[0] if len(experiments) == 1 else ""))
    if cell is None:
        what = (
            f"{name} is not an experiment of this notebook"
            if name
            else f"is missing, and the notebook has {len(experiments)} experiments"
        )
        raise ConfigError(
            CELL,
            what,
            classes.suggestion(name or "", experiments)
            if experiments
            else "Add a cell that begins with ```yaml experiment=NAME.",
        )
    line.config = command_line.merge(cell.config, line.config, description)
    require(line.experiment(description), queued=False)
    return _measured(workspace, description, line)


def _main_metric(experiment: Experiment) -> str:
    """The model's main validation metric; ConfigError if it is known to log none."""
    model = experiment.model.info
    main = names.main_metric(names.validation_metrics(model.metrics)) if model else None
    if main is None:
        raise ConfigError("--metric", "is missing: --target needs a metric", "Set it to a metric that the model logs.")
    return main


def _measured(workspace: Workspace, description: Description, line: CommandLine) -> int:
    question = _question(line.options, of_config=True)
    if "--workers" not in line.options:
        question = replace(question, workers=usual_workers(len(this_machine().cores), question.networks))
    question = question.of(line.experiment(description))
    question.check()
    if "--profile" in line.options:
        raise ConfigError("--profile", "is set together with a config", "Remove one of them.")
    target = number(line.options, "--target", None, -math.inf)
    seeds, metric = whole_number(line.options, "--seeds", 1) or 1, line.options.get("--metric") or ""
    if target is not None:
        metric = metric or _main_metric(line.experiment(description))
    with safe_path.importing():
        from scalebook.training.cli import plan_run
    return plan_run.measured(workspace, description, line, question, plan_run.Target(metric, target, seeds))


def _options(argv: Sequence[str]) -> dict[str, str | None]:
    """The options of a plan without a config."""
    options: dict[str, str | None] = {}
    words = [word for word in argv if word != trust.OPTION]
    while words:
        name, equals, value = words.pop(0).partition("=")
        if name == TABLE:
            options[name] = None
            continue
        if name not in OPTIONS:
            raise ConfigError(
                name,
                "is not an option of `plan` when no config is given",
                f"Use one of {', '.join([*OPTIONS, TABLE])}.",
            )
        if not equals:
            if not words:
                raise ConfigError(name, "has no value", f"Use {name} VALUE.")
            value = words.pop(0)
        options[name] = value
    return options


def _question(options: Mapping[str, str | None], of_config: bool = False) -> Question:
    """The question in the options. With `of_config`, rules and shards that no option names are those of the config.
    ConfigError for an invalid question, and for files that cannot be written."""
    question = Question(rules=(), shards=()) if of_config else Question(rules=rules(COMPARED))
    if (text := options.get("--strategies")) is not None:
        question = replace(question, rules=rules(text))
    if (text := options.get("--workers")) is not None:
        workers = numbers(text, "--workers")
        question = replace(question, workers=workers, at=0 if of_config else workers[-1])
    if (text := options.get("--shards")) is not None:
        question = replace(question, shards=numbers(text, "--shards"))
    if (text := options.get("--links")) is not None:
        question = replace(question, networks=tuple(text.split(",")))
    whole_number(options, "--split", 0, least=2)
    if not of_config:
        question.check()
    if (text := options.get("--figure")) is not None:
        check_figure(Path(text))
    return question
