"""The charts of a search: pure functions from trials to figures, but for `head` and `trial_table`, which draw."""
