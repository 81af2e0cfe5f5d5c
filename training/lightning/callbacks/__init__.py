"""What every run does beside training: measure, tell its progress, listen for a stop, notice divergence.

Begin with `defaults.py`, the callbacks of every recorded run, and `measure.py`, what is recorded; `computed_figures.py`
makes rates and shares of counts and times.
"""
