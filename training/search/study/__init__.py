"""The study of a search: where its trials are kept, what is tried next, which trials end early.

Begin with `study.py`. `sampling.py` draws points, `pruners.py` says which trials end early, `storage.py` and
`journal.py` keep them, and `study_reader.py` reads a study that another process writes. Optuna is imported inside
functions only.
"""

from typing import TYPE_CHECKING

from scalebook.training.lazy import interface

if TYPE_CHECKING:
    from scalebook.training.search.study import own_values
    from scalebook.training.search.study.own_values import Tags
    from scalebook.training.search.study.study_reader import read_study
    from scalebook.training.search.study.trials import STATES, State, TrialRecord, at_rest, at_work, best, pareto

__all__ = ["STATES", "State", "Tags", "TrialRecord", "at_rest", "at_work", "best", "own_values", "pareto", "read_study"]

__getattr__ = interface(__name__)
