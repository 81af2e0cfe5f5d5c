"""The search: an Optuna study over a config, whose trials are jobs of the supervisor's queue.

Optuna is asked in one process, the driver, and never inside training. Importing any of this loads neither torch nor
Optuna. The rooms, from the outermost inwards:

    launch   start, resume, stop, find: what buttons and commands call
    folder   where a search lives; what each file means and who writes it
    driver   the loop: adopt, look, tell, submit; with `trial_source` (which point is next), `bounds` (which need not
             be run), `trial_jobs` (a trial's runs), `outcome` (what they mean), `telling` and `record` (progress,
             MLflow)
    study    Optuna: `sampling`, `gp`; `pruners`, `judge` (verdicts at equal samples); `storage`,
             `journal`; `trials` and `reading` (what everybody else sees)
    map      the landscape: `scales`, `shades`, `surface`; drawn on the page, and by `pictures` for documents
"""
