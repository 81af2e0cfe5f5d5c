"""The list of runs (`page`), and what other pages show of runs: `data` (a run, the runs of an experiment, devices) and
`records` (files that runs leave). `run_query` says which runs are listed; `widgets` and `table` draw them;
`remarks` has what a person says of them. Begin with `data.RunView`.
"""
