"""Callbacks of every run: measure, report progress, listen for a stop, detect divergence. `cli/lightning_cli.py` has
the list of them.

Begin with `measure.py`, what is recorded; `computed_figures.py` makes rates and shares of counts and times,
`job_files.py` reads and writes the job's folder.
"""
