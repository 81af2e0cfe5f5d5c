"""The planner: how fast a system would train with more workers, where adding them stops helping, and why.

Begin with `answering.py`: from a `Question` about a `Profile` (what a system is made of) to an `Answer`. `play.py`
plays a run's timing on the engine itself, `closed_forms.py` and `all_reduce.py` need no play, `measuring.py` measures
the profile of a config on this machine. What the browser side uses imports no torch.
"""

from typing import TYPE_CHECKING

from scalebook.training.lazy import interface

if TYPE_CHECKING:
    from scalebook.training.planner import answer_words, split_words, tuning
    from scalebook.training.planner.answering import Setting, answer
    from scalebook.training.planner.answers import (
        Answer,
        Basis,
        Curve,
        Knee,
        Point,
        Range,
        Reliability,
        SplitAnswer,
    )
    from scalebook.training.planner.measuring import NotMeasured, measure
    from scalebook.training.planner.question import (
        COMPARED,
        MOST_TRAINED,
        MOST_WORKERS,
        PER_CORE,
        USUAL,
        WORKERS,
        Question,
        numbers,
        rules,
        usual_workers,
    )
    from scalebook.training.planner.question_folder import PlanRequest, QuestionFolder, measured
    from scalebook.training.planner.split_grid import OPTION, splits_of
    from scalebook.training.planner.time_to_target import TargetAnswer, target_lines, target_words
    from scalebook.training.planner.updates_to_target import check_metric, reach

__all__ = [
    "COMPARED", "MOST_TRAINED", "MOST_WORKERS", "OPTION", "PER_CORE", "USUAL", "WORKERS", "Answer", "Basis", "Curve",
    "Knee", "NotMeasured", "PlanRequest", "Point", "Question", "QuestionFolder", "Range", "Reliability", "Setting",
    "SplitAnswer", "TargetAnswer", "answer", "answer_words", "check_metric", "measure", "measured", "numbers", "reach",
    "rules", "split_words", "splits_of", "target_lines", "target_words", "tuning", "usual_workers",
]  # fmt: skip

__getattr__ = interface(__name__)
