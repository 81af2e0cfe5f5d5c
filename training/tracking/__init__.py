"""What is recorded of a run, in MLflow: the names, the logger that writes them, and reading them back.

Begin with `names.py`, where every metric, tag and parameter stands once. `run_start.py` begins a run's record,
`logger.py` writes while it trains, `run_reader.py` reads it back without torch; `drawing.py` draws curves outside the
browser.
"""
