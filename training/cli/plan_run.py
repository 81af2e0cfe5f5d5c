"""`scalebook plan` in the foreground: measure a config, then answer where adding workers stops helping."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TextIO

from scalebook.training.base import Workspace, processes
from scalebook.training.base.files import records, terminal, yaml
from scalebook.training.cli.plan_chart import target_figure, throughput_figure
from scalebook.training.experiments import CommandLine, Description
from scalebook.training.planner import (
    MOST_TRAINED,
    MOST_WORKERS,
    OPTION,
    NotMeasured,
    Question,
    Reliability,
    Setting,
    TargetAnswer,
    answer,
    answer_words,
    check_metric,
    measure,
    reach,
    split_words,
    splits_of,
    target_lines,
)
from scalebook.training.planner.tuning import INTERRUPTED, number, whole_number
from scalebook.training.pricing import Profile, profile_mapping
from scalebook.training.tracking import drawing

MORE: Final = "Use --table for a table of each strategy by number of workers, and for the accuracy of earlier plans."


@dataclass(frozen=True)
class Target:
    """The options `--target`, `--metric` and `--seeds`; `value` is None without `--target`."""

    metric: str
    value: float | None
    seeds: int


def measured(
    workspace: Workspace, description: Description, line: CommandLine, question: Question, target: Target
) -> int:
    """Exit code: 0 with an answer, 1 if measuring failed, 130 interrupted. ConfigError for an unknown metric."""
    experiment = line.experiment(description)
    if target.value is not None:
        check_metric(experiment, target.metric)
    with processes.sigterm_interrupts():
        try:
            profile = measure(workspace.create(), experiment, sys.stdout)
            if (path := line.options.get("--save-profile")) is not None:
                Path(path).write_text(yaml.dump(profile_mapping(profile)), encoding="utf-8")
            answered(profile, question, line.options)
            if target.value is not None:
                setting = Setting.of(profile, question, question.rules[0], question.shards[0], question.networks[0])
                most = MOST_WORKERS if "--workers" in line.options else MOST_TRAINED
                counts = [count for count in question.workers if count <= most]
                reached = reach(
                    workspace, experiment, setting, counts, target.metric, target.value, target.seeds,
                    sys.stdout,
                )  # fmt: skip
                _told(reached, setting.reliability, line.options)
        except NotMeasured as error:
            print(f"scalebook: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("\nInterrupted.")
            return INTERRUPTED
    return 0


def answered(profile: Profile, question: Question, options: Mapping[str, str | None]) -> None:
    """Print the answer, and write the files that the options name."""
    price = number(options, "--price", None, 0.0)
    splits = splits_of(profile, question, whole_number(options, OPTION, 0, least=2) or 0)
    result = replace(answer(profile, question, _Progress(sys.stdout)), splits=splits)
    in_full = "--table" in options or price is not None
    every = in_full or "--strategies" in options
    for line in (
        *answer_words.printed(result, profile, answer_words.curves(result, every=every)),
        *(line for each in splits for line in ("", *split_words.split_lines(each))),
        "",
        *(answer_words.tables(result, price) if in_full else [MORE]),
    ):
        print(line)
    if (path := options.get("--json")) is not None:
        records.save(Path(path), result)
    if (path := options.get("--figure")) is not None:
        drawing.save(throughput_figure(result.curves), Path(path), "samples/s by number of workers")


def _told(reached: TargetAnswer, within: Reliability, options: Mapping[str, str | None]) -> None:
    """Print the time to the target; write its files beside those of the answer, as `NAME-target`."""
    print()
    for text in target_lines(reached, within):
        print(text)
    if (path := options.get("--json")) is not None:
        records.save(_beside(Path(path)), reached)
    if (path := options.get("--figure")) is not None and (figure := target_figure(reached)) is not None:
        drawing.save(figure, _beside(Path(path)), f"time to {reached.metric} {reached.target:g} by number of workers")


def _beside(path: Path) -> Path:
    return path.with_stem(f"{path.stem}-target")


class _Progress:
    """A progress line that is overwritten, on a terminal only."""

    def __init__(self, out: TextIO) -> None:
        self._out = out if out.isatty() else None

    def __call__(self, done: int, whole: int, words: str) -> None:
        if self._out is not None:
            terminal.overwrite_line(self._out, "" if done == whole else f"scalebook: {done}/{whole} {words}"[:100])
