"""The pages of searches, and a search as a cell of a notebook (`cells`). Begin with `page.show_one`; `live` is what
moves in it, `widgets` its parts, `trial_map`, `learning_curves` and `trial_charts` (all with `looks`) its charts.
`data` is of searches, `trial_data` of their trials.
"""
