"""The search: an Optuna study over a config, whose trials are jobs of the supervisor's queue.

Optuna is asked in one process, the driver, and never inside training. `launch` is the door for buttons and commands;
`folder` is where a search lives; `driver` asks, submits and tells, with `trial_jobs` (a trial's runs), `outcome` (what
they mean), `bounds` (what need not be run) and `record` (MLflow); `study` with `samplers`, `pruners` and `storage` is
Optuna; `trials` is what pages read. Importing any of it loads neither torch nor Optuna.
"""
