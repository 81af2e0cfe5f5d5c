"""The process that runs a search: asks for points, has them run as jobs, tells the study how they ended.

Begin with `driver_loop.py`. `trial_source.py` says which point is next, `trial_jobs.py` makes its jobs,
`trial_outcome.py` what their ends mean, `driver_progress.py` and `search_record.py` what people and MLflow are told.
"""
