"""The process for one question of the browser: `python -m scalebook.training.planner.planner_process FOLDER`."""

import io
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Final

from typing_extensions import override

from scalebook.training.base import ConfigError, processes
from scalebook.training.experiments import Experiment, catalogue
from scalebook.training.planner.answering import Setting, answer
from scalebook.training.planner.question_folder import QuestionFolder
from scalebook.training.planner.split_grid import splits_of
from scalebook.training.planner.time_to_target import TargetAnswer
from scalebook.training.pricing import Profile

DEADLINE_S: Final = 900
TRAINING_S: Final = 6 * 3600
"""Time limit of simulated runs to a target."""
EVERY_S: Final = 0.2
"""Seconds between two reports of progress."""


def main(argv: Sequence[str]) -> int:
    """Exit code: 0 answered, 2 a mistake in the question, 1 a failure (both are written to the folder), 130 stopped."""
    plan = QuestionFolder.at(Path(argv[0]))
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(DEADLINE_S)
    try:
        with processes.sigterm_interrupts():
            _work(plan)
    except KeyboardInterrupt:
        return 130
    except ConfigError as error:
        plan.fail(error)
        return 2
    except Exception as error:  # noqa: BLE001 - who waits for an answer is told, with the log
        plan.fail(ConfigError("plan", f"failed: {error or type(error).__name__}", f"See {plan.folder / 'log.txt'}."))
        traceback.print_exc()
        return 1
    return 0


def _work(plan: QuestionFolder) -> None:
    if plan.request.target is not None:
        _check_metric(plan)
    question = plan.request.question()
    if plan.has_config():
        question = question.of(_experiment(plan))
    question.check()
    profile = plan.profile()
    if profile is None:
        profile = _measure(plan)
        plan.keep_profile(profile)
    if plan.answer() is None:
        splits = splits_of(profile, question, plan.request.split)
        plan.keep_answer(profile, replace(answer(profile, question, _Seldom(plan)), splits=splits))
    if plan.request.target is not None:
        signal.alarm(TRAINING_S)
        setting = Setting.of(profile, question, question.rules[0], question.shards[0], question.networks[0])
        plan.keep_target(profile, _train(plan, setting, question.workers, plan.request.target))


def _experiment(plan: QuestionFolder) -> Experiment:
    return Experiment.read(plan.config(), catalogue.describe(plan.workspace))


def _check_metric(plan: QuestionFolder) -> None:
    from scalebook.training.planner.updates_to_target import check_metric  # Lightning, which playing does without

    check_metric(_experiment(plan), plan.request.metric)


def _measure(plan: QuestionFolder) -> Profile:
    """Of the config, in a short run of its own. ConfigError where it cannot run, or has failed."""
    from scalebook.training.planner.measuring import NotMeasured, measure  # Lightning, which playing does without

    try:
        return measure(plan.workspace, _experiment(plan), _Words(plan))
    except NotMeasured as error:
        raise _told(error) from error


def _train(plan: QuestionFolder, setting: Setting, workers: Sequence[int], target: float) -> TargetAnswer:
    """With each number of virtual workers, up to MOST_TRAINED. ConfigError where a run has failed."""
    from scalebook.training.planner.measuring import NotMeasured
    from scalebook.training.planner.question import MOST_TRAINED
    from scalebook.training.planner.updates_to_target import reach

    request, workspace = plan.request, plan.workspace
    counts = [count for count in workers if count <= MOST_TRAINED]
    try:
        return reach(
            workspace, _experiment(plan), setting, counts, request.metric, target, request.seeds,
            _Words(plan),
        )  # fmt: skip
    except NotMeasured as error:
        raise _told(error) from error


def _told(error: RuntimeError) -> ConfigError:
    what, _, fix = str(error).partition(". ")
    return ConfigError("plan", what, fix)


class _Words(io.StringIO):
    """Where measuring and training say what they do."""

    def __init__(self, plan: QuestionFolder) -> None:
        super().__init__()
        self._asked = plan

    @override
    def write(self, text: str, /) -> int:
        if words := text.strip().removeprefix("scalebook: "):
            self._asked.write_progress(0, 0, words)
        return len(text)


class _Seldom:
    """Tells how far it is, at most every EVERY_S."""

    def __init__(self, plan: QuestionFolder) -> None:
        self._asked, self._next = plan, 0.0

    def __call__(self, done: int, whole: int, words: str) -> None:
        if (now := time.monotonic()) >= self._next:
            self._asked.write_progress(done, whole, words)
            self._next = now + EVERY_S


def _too_long(number: int, frame: FrameType | None) -> None:
    raise ConfigError("plan", "took too long", "Plan fewer workers, rules, shards or links.")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
