"""Claims: what a notebook says of its runs, judged by their seeds and by nobody.

Begin with `judging.py`, the rule of the verdict. `evidence.py` finds the runs of each side, `intervals.py` computes the
intervals, `claim_locks.py` keeps what a claim said when its first run began, `power.py` says how likely it is to be
resolved, `written_tables.py` writes tables of results into a notebook.
"""
