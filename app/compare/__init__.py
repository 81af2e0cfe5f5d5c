"""Comparing runs: the page (`page`), and comparisons and claims as cells of a notebook (`cells`). `data` has what is
being set up, `widgets` draws results and forms. Begin with `cells.show_comparison`.
"""
