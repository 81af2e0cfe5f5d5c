"""The notebook file: Markdown with fenced YAML cells, read and written without losing a byte. No torch in here.

Begin with `parse.py` and `cells.py` (what a notebook consists of), `store.py` (on disk) and `edit.py`. `comparison.py`
compares experiments, `results.py` finds their runs. `claims/` judges what a notebook says, `export/` makes a document
of it.
"""

from typing import TYPE_CHECKING

from scalebook.training.lazy import interface

if TYPE_CHECKING:
    from scalebook.training.notebook import (
        answer_body,
        claim_body,
        claims,
        edit,
        export,
        lifecycle,
        relative,
        store,
    )
    from scalebook.training.notebook.bodies import HELP, MOST_REPEATS
    from scalebook.training.notebook.cells import (
        AnswerCell,
        Axis,
        BrokenCell,
        Cell,
        ClaimCell,
        ComparisonCell,
        ExperimentCell,
        Note,
        Notebook,
        Ratio,
        SearchCell,
        Side,
    )
    from scalebook.training.notebook.claim_checks import claim_problems
    from scalebook.training.notebook.comparison import (
        Comparison,
        compare,
        compare_runs,
        differences,
        meanings_by_name,
        record_figures,
    )
    from scalebook.training.notebook.comparison_table import TABLE_WIDTH, comparison_text
    from scalebook.training.notebook.examples import copy_examples
    from scalebook.training.notebook.explanations import sentences
    from scalebook.training.notebook.fences import LONGEST_NAME, NAME, NAME_REMEDY, first_heading
    from scalebook.training.notebook.history import (
        MOST_STATES,
        PastState,
        past_states,
        previous_state,
    )
    from scalebook.training.notebook.merge import both_kept, merged
    from scalebook.training.notebook.notebook_changes import changes
    from scalebook.training.notebook.notebook_problems import CellProblem, check
    from scalebook.training.notebook.number_format import count, factor
    from scalebook.training.notebook.offered_metrics import offered, unnamed
    from scalebook.training.notebook.read_results import (
        SeedResult,
        changed_since,
        follow_renames,
        results,
    )
    from scalebook.training.notebook.result_row import (
        AXES,
        ExperimentRow,
        axes_with_data,
        best,
        lost_workers,
        shared_numbers,
    )
    from scalebook.training.notebook.run_labels import labels
    from scalebook.training.notebook.store import Stored

__all__ = [
    "AXES", "HELP", "LONGEST_NAME", "MOST_REPEATS", "MOST_STATES", "NAME", "NAME_REMEDY", "TABLE_WIDTH", "AnswerCell",
    "Axis", "BrokenCell", "Cell", "CellProblem", "ClaimCell", "Comparison", "ComparisonCell", "ExperimentCell",
    "ExperimentRow", "Note", "Notebook", "PastState", "Ratio", "SearchCell", "SeedResult", "Side", "Stored",
    "answer_body", "axes_with_data", "best", "both_kept", "changed_since", "changes", "check", "claim_body",
    "claim_problems", "claims", "compare", "compare_runs", "comparison_text", "copy_examples", "count", "differences",
    "edit", "export", "factor", "first_heading", "follow_renames", "labels", "lifecycle", "lost_workers",
    "meanings_by_name", "merged", "offered", "past_states", "previous_state", "record_figures", "relative", "results",
    "sentences", "shared_numbers", "store", "unnamed",
]  # fmt: skip

__getattr__ = interface(__name__)
