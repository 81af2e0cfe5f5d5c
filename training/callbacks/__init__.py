"""The callbacks of a notebook's runs: they measure, report progress, listen for a stop and detect divergence.
`cli/lightning_cli.py` lists them.

Begin with `measure.py`, what is recorded; `computed_figures.py` makes rates and shares of counts and times,
`job_files.py` reads and writes the job's folder.
"""
