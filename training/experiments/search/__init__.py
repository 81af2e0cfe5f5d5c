"""Searches as a cell or a file describes them: read, checked, counted. Nothing here runs anything.

Begin with `definition.py`, which reads a search into the types of `types.py`. `space.py` is one dimension, `point.py`
makes a trial's config, `search_problems.py` says what is wrong, `presets.py` has searches made to measure.
"""
