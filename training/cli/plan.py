"""`scalebook plan`: where adding workers stops helping, why, and what would move it."""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TextIO

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files import records, yaml
from scalebook.training.base.files.terminal import overwrite_line
from scalebook.training.base.trust import OPTION, resolve_trust
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments.catalogue import describe
from scalebook.training.experiments.classes import read_class, suggestion
from scalebook.training.experiments.command_line import CONFIG_OPTIONS, CommandLine, merge, parse
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.validate import require
from scalebook.training.jobs.process import sigterm_interrupts
from scalebook.training.notebook import store
from scalebook.training.planner.answer import Reliability
from scalebook.training.planner.answer_words import printed
from scalebook.training.planner.answering import Setting, answer
from scalebook.training.planner.chart import check_figure, target_figure, throughput_figure
from scalebook.training.planner.links import NETWORKS
from scalebook.training.planner.measuring import NotMeasured, measure
from scalebook.training.planner.profile import Profile, as_mapping, load_profile
from scalebook.training.planner.question import COMPARED, MOST_WORKERS, WORKERS, Question, numbers, rules
from scalebook.training.planner.time_to_target import TargetAnswer, target_lines
from scalebook.training.planner.tuning.followed_job import INTERRUPTED
from scalebook.training.planner.tuning.tuning_config import HELP as HELP_OPTIONS
from scalebook.training.planner.tuning.tuning_config import number, prepared, whole_number
from scalebook.training.planner.updates_to_target import MOST_TRAINED, check_metric, reach
from scalebook.training.tracking import names
from scalebook.training.tracking.drawing import save

CELL: Final = "--cell"
OPTIONS: Final = (
    "--profile", "--save-profile", "--workers", "--strategies", "--shards", "--links", "--seed", "--json", "--figure",
    "--target", "--metric", "--seeds", "--price",
)  # fmt: skip
HELP: Final = f"""usage: scalebook plan -c FILE [--workers {",".join(map(str, WORKERS))}] [--strategies {COMPARED}]
                      [--shards 1] [--links own,{",".join(NETWORKS)}] [--save-profile FILE] [--json FILE]
                      [--figure FILE] [--price HOUR] [--target VALUE [--metric NAME] [--seeds 1]] [--KEY VALUE ...]
       scalebook plan FILE.md --cell NAME [the same options], of an experiment of a notebook
       scalebook plan --profile PROFILE.yaml [the same options]

Measures the parts of a config on this machine (a gradient and its spread, the bytes of a push and a pull, the servers'
time for one; under 30 s), or reads them from a profile, and plays the timing of runs with so many workers: updates/s,
samples/s, staleness; where adding workers stops helping, what causes it, and what would move it. Strategies:
ddp, fsdp, or the rule of a parameter server, whose first argument follows it: bounded:4, sync:1 (backup workers).
They are compared for the config's number of workers. Rule, shards, codecs, damping and local steps are
the config's where nothing else is asked; what cannot be planned is refused. Links: `own` are the profile's; after a
measurement workers are processes of this machine and share its cores. Any other link puts each worker on a machine of
its own.

Each row also has the bytes of a worker's weights, gradients and optimizer state (activations are not counted) and, with
--price (of a worker's hour, in any currency), what a million samples cost.

With --target the config is also trained, with up to {MOST_TRAINED} virtual workers (or all that --workers names), under
the first rule, link and number of shards: updates to the target, times the seconds of an update, is the time to it."""


def main(argv: Sequence[str]) -> int:
    """Exit code: 0 with an answer, 1 where measuring failed, 130 interrupted. ConfigError, before anything starts."""
    if argv and not argv[0].startswith("-"):
        return _of_cell(Path(argv[0]), argv[1:])
    if any(word.partition("=")[0] in CONFIG_OPTIONS for word in argv) or not set(argv) - {OPTION}:
        return _of_config(argv)
    if set(argv) & set(HELP_OPTIONS):
        print(HELP)
        return 0
    options = _options(argv)
    if "--profile" not in options:
        raise ConfigError("plan", "needs a system", "Write -c FILE for a config, or --profile FILE.")
    question = _question(options)
    if "--target" in options:
        raise ConfigError("--target", "needs a model to train", "Write -c FILE.")
    return _answered(load_profile(Path(options["--profile"] or "")), question, options, sys.stdout)


def _of_config(argv: Sequence[str]) -> int:
    begun = prepared(argv, OPTIONS, HELP, queued=False)
    if isinstance(begun, int):
        return begun
    return _measured(*begun)


def _of_cell(path: Path, argv: Sequence[str]) -> int:
    workspace = Workspace(path.resolve().parent)
    resolve_trust(workspace, OPTION in argv, runs=True)
    description = describe(workspace)
    line = parse(argv, description, {OPTION: False, **dict.fromkeys((*OPTIONS, CELL), True)})
    notebook, name = store.read(path).notebook, line.options.get(CELL)
    known = [cell.name for cell in notebook.experiments()]
    cell = notebook.experiment(name or (known[0] if len(known) == 1 else ""))
    if cell is None:
        what = (
            f"{name} is not an experiment of this notebook" if name else f"is missing; it has {len(known)} experiments"
        )
        raise ConfigError(
            CELL, what, suggestion(name or "", known) if known else "Write a cell ```yaml experiment=NAME."
        )
    line.config = merge(cell.config, line.config, description)
    require(line.config, description, queued=False)
    return _measured(workspace, description, line)


def _main_metric(config: Mapping[str, Any], description: Description) -> str:
    """What the model is known to log while validating; ConfigError where that is nothing."""
    model = read_class(config.get("model")).info("models", description)
    main = names.main_metric(names.validation_metrics(model.metrics)) if model else None
    if main is None:
        raise ConfigError("--metric", "is missing: --target needs a metric", "Name a metric that the model logs.")
    return main


def _measured(workspace: Workspace, description: Description, line: CommandLine) -> int:
    question = _question(line.options, of_config=True).of(line.config, description)
    question.check()
    if "--profile" in line.options:
        raise ConfigError("--profile", "and a config are both set", "Remove one of them.")
    target = number(line.options, "--target", None, -math.inf)
    seeds, metric = whole_number(line.options, "--seeds", 1) or 1, line.options.get("--metric") or ""
    if target is not None:
        metric = metric or _main_metric(line.config, description)
        check_metric(line.config, metric, description)
    with sigterm_interrupts():
        try:
            profile = measure(workspace.create(), line.config, description, sys.stdout)
            if (path := line.options.get("--save-profile")) is not None:
                Path(path).write_text(yaml.dump(as_mapping(profile)), encoding="utf-8")
            code = _answered(profile, question, line.options, sys.stdout)
            if target is not None:
                setting = Setting.of(profile, question, question.rules[0], question.shards[0], question.networks[0])
                most = MOST_WORKERS if "--workers" in line.options else MOST_TRAINED
                counts = [count for count in question.workers if count <= most]
                found = reach(workspace, line.config, description, setting, counts, metric, target, seeds, sys.stdout)
                _told(found, setting.reliability, line.options, sys.stdout)
        except NotMeasured as error:
            print(f"scalebook: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("\nInterrupted.")
            return INTERRUPTED
    return code


def _told(found: TargetAnswer, within: Reliability, options: Mapping[str, str | None], out: TextIO) -> None:
    """Print it; as files beside those of the answer, called `NAME-target`."""
    print(file=out)
    for text in target_lines(found, within):
        print(text, file=out)
    if (path := options.get("--json")) is not None:
        records.save(_beside(Path(path)), found)
    if (path := options.get("--figure")) is not None and (figure := target_figure(found)) is not None:
        save(figure, _beside(Path(path)), f"time to {found.metric} {found.target:g} against workers")


def _beside(path: Path) -> Path:
    return path.with_stem(f"{path.stem}-target")


def _options(argv: Sequence[str]) -> dict[str, str | None]:
    """Of a plan without a config."""
    options: dict[str, str | None] = {}
    words = [word for word in argv if word != OPTION]
    while words:
        name, equals, value = words.pop(0).partition("=")
        if name not in OPTIONS:
            raise ConfigError(name, "is not an option of plan without a config", f"Known: {', '.join(OPTIONS)}.")
        if not equals:
            if not words:
                raise ConfigError(name, "has no value", f"Write {name} VALUE.")
            value = words.pop(0)
        options[name] = value
    return options


def _question(options: Mapping[str, str | None], of_config: bool = False) -> Question:
    """What is asked, `of_config`: of rules and shards those that a config has where no option names any. ConfigError
    for what cannot be asked, and for files that could not be written."""
    asked = Question(rules=(), shards=()) if of_config else Question(rules=rules(COMPARED))
    if (text := options.get("--strategies")) is not None:
        asked = replace(asked, rules=rules(text))
    if (text := options.get("--workers")) is not None:
        workers = numbers(text, "--workers")
        asked = replace(asked, workers=workers, at=0 if of_config else workers[-1])
    if (text := options.get("--shards")) is not None:
        asked = replace(asked, shards=numbers(text, "--shards"))
    if (text := options.get("--links")) is not None:
        asked = replace(asked, networks=tuple(text.split(",")))
    asked = replace(asked, seed=whole_number(options, "--seed", 0, least=0) or 0)
    if not of_config:
        asked.check()
    if (text := options.get("--figure")) is not None:
        check_figure(Path(text))
    return asked


def _answered(profile: Profile, question: Question, options: Mapping[str, str | None], out: TextIO) -> int:
    price = number(options, "--price", None, 0.0)
    found = answer(profile, question, _Progress(out))
    for line in printed(found, profile, price):
        print(line, file=out)
    if (path := options.get("--json")) is not None:
        records.save(Path(path), found)
    if (path := options.get("--figure")) is not None:
        save(throughput_figure(found.curves), Path(path), "samples/s against workers")
    return 0


class _Progress:
    """A line that is written over, on a terminal alone."""

    def __init__(self, out: TextIO) -> None:
        self._out = out if out.isatty() else None

    def __call__(self, done: int, whole: int, words: str) -> None:
        if self._out is not None:
            overwrite_line(self._out, "" if done == whole else f"scalebook: {done}/{whole} {words}"[:100])
