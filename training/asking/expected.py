"""What the planner expects of more workers than this machine has room for."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from scalebook.training.asking.answer_rows import PlannedRow
from scalebook.training.base import Workspace
from scalebook.training.experiments import Experiment, config_hash, strategy_words
from scalebook.training.planner import PlanRequest, QuestionFolder, measured
from scalebook.training.pricing import Profile, profile_mapping

TIMES: Final = (2, 4)
"""Numbers of workers that are planned, as multiples of those that this machine has room for."""
RULES: Final = {"ddp": ("ddp", None), "async": ("AsyncPS", "async")}


def question(workspace: Workspace, profile: Profile, slots: int) -> QuestionFolder:
    """The question to the planner: the measured profile, on a machine with enough cores."""
    most = max(TIMES) * slots
    larger = replace(profile, cores=most, server_cores=most)
    workers = sorted({1, slots, *(times * slots for times in TIMES)})
    return QuestionFolder(workspace, PlanRequest(profile_mapping(larger), "", workers, [*RULES], [1], ["own"]))


def expected(workspace: Workspace, experiment: Experiment, slots: int) -> Sequence[PlannedRow]:
    """The time of a sample as a multiple of one process's, from an answer of the planner; empty where there is none."""
    profile = measured(workspace, config_hash(experiment))
    answer = question(workspace, profile, slots).answer() if profile is not None and not profile.busy else None
    rows = []
    for curve in answer.curves if answer is not None else ():
        for point in curve.points:
            if point.workers > slots and curve.rule in RULES and answer is not None:
                low, high = curve.reliability.updates_per_s.likely(point.samples_per_s / answer.alone_per_s)
                words = strategy_words(*RULES[curve.rule], point.workers)
                rows.append(PlannedRow(words, point.workers, 1 / high, 1 / low))
    return rows


def plan(workspace: Workspace, experiment: Experiment, slots: int) -> str:
    """Have the planner answer, and measure for a few seconds first, where nobody has; returns why there is no plan."""

    from scalebook.training.planner import NotMeasured, answer, measure

    folder = QuestionFolder(workspace, PlanRequest(None, config_hash(experiment), [], [], [], []))
    profile = folder.profile()
    if profile is None:
        try:
            profile = measure(workspace, experiment, sys.stderr)
        except NotMeasured as error:
            return f"More workers could not be planned: {error}"
        folder.keep_profile(profile)
    if profile.busy:
        return "More workers could not be planned, because other processes used this machine during the measurement."
    folder = question(workspace, profile, slots)
    read = folder.profile()
    if read is not None and folder.answer() is None:
        folder.keep_answer(read, answer(read, folder.request.question()))
    return ""
