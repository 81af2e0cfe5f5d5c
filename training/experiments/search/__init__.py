"""Searches as a cell or a file describes them: read, checked, counted. Nothing here runs anything.

Begin with `definition.py`, which reads a search into the types of `types.py`. `space.py` is one dimension, `point.py`
makes a trial's config, `search_checks.py` says what is wrong, `presets.py` has searches made to measure.
"""

from typing import TYPE_CHECKING

from scalebook.training.lazy import interface

if TYPE_CHECKING:
    from scalebook.training.experiments.search import keys, point
    from scalebook.training.experiments.search.costs import Cost, cost, trials_wanted
    from scalebook.training.experiments.search.definition import body_of, identity, read_search, search_problems
    from scalebook.training.experiments.search.point import (
        STRATEGIES,
        canonical,
        is_single,
        resolve,
        summary,
    )
    from scalebook.training.experiments.search.presets import PRESETS, preset_body
    from scalebook.training.experiments.search.search_checks import MOST_POINTS, extremes
    from scalebook.training.experiments.search.space import Dimension, Kind, decode_point
    from scalebook.training.experiments.search.types import AMOUNTS, Objective, SearchSpec

__all__ = [
    "AMOUNTS", "MOST_POINTS", "PRESETS", "STRATEGIES", "Cost", "Dimension", "Kind", "Objective", "SearchSpec",
    "body_of", "canonical", "cost", "decode_point", "extremes", "identity", "is_single", "keys", "point",
    "preset_body", "read_search", "resolve", "search_problems", "summary", "trials_wanted",
]  # fmt: skip

__getattr__ = interface(__name__)
