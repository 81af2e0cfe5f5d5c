"""Claims: what a notebook says of its runs, judged by their seeds and by nobody.

Begin with `judging.py`, the rule of the verdict. `evidence.py` finds the runs of each side, `intervals.py` computes the
intervals, `claim_locks.py` keeps what a claim said when its first run began, `power.py` says how likely it is to be
resolved, `written_tables.py` writes tables of results into a notebook.
"""

from typing import TYPE_CHECKING

from scalebook.training.lazy import interface

if TYPE_CHECKING:
    from scalebook.training.notebook.claims import claim_table, written_tables
    from scalebook.training.notebook.claims.claim_locks import claim_tags
    from scalebook.training.notebook.claims.claim_words import MISSING, claim_sentence
    from scalebook.training.notebook.claims.evidence import EvidenceReader, needs_curve
    from scalebook.training.notebook.claims.intervals import Confidence, crossing, ratio_interval
    from scalebook.training.notebook.claims.judging import ClaimRow, Judgement, judge_all
    from scalebook.training.notebook.claims.written_tables import Table

__all__ = [
    "MISSING", "ClaimRow", "Confidence", "EvidenceReader", "Judgement", "Table", "claim_sentence", "claim_table",
    "claim_tags", "crossing", "judge_all", "needs_curve", "ratio_interval", "written_tables",
]  # fmt: skip

__getattr__ = interface(__name__)
