"""Asks a question about an experiment and answers it: writes cells into the notebook, runs them, says what they show.

Begin with `recipe.py` (what a question is) and `recipes/` (one file for each); `asking.py` decides what to do next and
does it, `sizes.py` how much fits into the budget, `answer.py` what the answer is. The browser reads answers and starts
questions without importing torch.
"""

from typing import TYPE_CHECKING

from scalebook.training.lazy import interface

if TYPE_CHECKING:
    from scalebook.training.asking import answer_bars
    from scalebook.training.asking.answer import AnswerReader
    from scalebook.training.asking.answer_export import exported_answers
    from scalebook.training.asking.answer_rows import Findings, table
    from scalebook.training.asking.ask_folder import AskFailure, AskFolder, AskProgress
    from scalebook.training.asking.asked_cells import asked_before, begun, with_seeds
    from scalebook.training.asking.asking import Asking, NoAnswer
    from scalebook.training.asking.previews import Preview, Trained, preview, trained_before
    from scalebook.training.asking.recipes import all_recipes, recipe_named
    from scalebook.training.asking.sizes import longer_budget

__all__ = [
    "AnswerReader", "AskFailure", "AskFolder", "AskProgress", "Asking", "Findings", "NoAnswer", "Preview", "Trained",
    "all_recipes", "answer_bars", "asked_before", "begun", "exported_answers", "longer_budget", "preview",
    "recipe_named", "table", "trained_before", "with_seeds",
]  # fmt: skip

__getattr__ = interface(__name__)
