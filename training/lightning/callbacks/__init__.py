"""Callbacks of every run: measure, report progress, listen for a stop, detect divergence.

Begin with `defaults.py`, the callbacks of every recorded run, and `measure.py`, what is recorded; `computed_figures.py`
makes rates and shares of counts and times.
"""
