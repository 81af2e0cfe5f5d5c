"""An answer as the engine has played it once, of what the form's example and its question say."""

from pathlib import Path

from scalebook.app.plan.data import FIELDS, from_fields
from scalebook.training.base.files import records
from scalebook.training.base.workspace import Workspace
from scalebook.training.engine.rules.clock_settings import Distribution
from scalebook.training.planner.answers import Answer
from scalebook.training.planner.question_folder import PlanRequest, QuestionFolder
from scalebook.training.planner.time_to_target import TargetAnswer, TargetPoint
from scalebook.training.pricing.profile import Profile, profile_mapping

ANSWER = Path(__file__).with_name("answer.json")


def example() -> Profile:
    """The form's."""
    return from_fields({field.key: field.default for field in FIELDS})


def answer() -> Answer:
    found = records.load(ANSWER, Answer)
    assert found is not None
    return found


def request(profile: Profile | None = None) -> PlanRequest:
    """What the page asks where nothing is chosen."""
    known = profile_mapping(profile or example())
    return PlanRequest(known, "", [1, 2, 4, 8, 16, 32, 64], ["ddp", "fsdp", "sync", "async"], [1], ["own"])


MEASURED = Profile(
    Distribution("gamma", 0.0458, 0.28), 32, 94_340, 94_340, 0.0075, cores=2, title="PixelCNN",
    source="measured in 85 steps on 2 cores",
)  # fmt: skip
"""Of a PixelCNN on digits, on a busy machine."""


def reached() -> TargetAnswer:
    """Twice the workers: 1.9 times the updates a second, and 1.25 times as many of them; 4 miss it."""
    points = [TargetPoint(1, 100.0, 10.0), TargetPoint(2, 125.0, 19.0), TargetPoint(4, None, 30.0)]
    return TargetAnswer("val/accuracy", 0.9, "async", "own", 2, points, [])


def keep(workspace: Workspace, measured: str = "") -> Answer:
    """Put it where the page looks for it; and MEASURED as that of the config with the hash `measured`."""
    if measured:
        QuestionFolder(workspace, PlanRequest(None, measured, [], [], [], [])).keep_profile(MEASURED)
    asked = QuestionFolder(workspace, request())
    asked.keep_answer(example(), answer())
    found = asked.answer()
    assert found is not None, "it is an answer to that"
    return found
