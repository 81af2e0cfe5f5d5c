"""The pages of searches, and a search as a cell of a notebook (`cells`). Begin with `page.show_one`; `live` draws what
changes during a search, `widgets` its parts, `trial_map`, `learning_curves` and `trial_charts` its charts, with colours
and markers from `trial_style`. `data` is about searches, `trial_data` about their trials.
"""
