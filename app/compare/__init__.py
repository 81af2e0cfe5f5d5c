"""Comparing runs: the page (`page`), and comparisons and claims as cells of a notebook (`cells`). `data` holds those
that are being set up, `widgets` draws results and forms. Begin with `cells.show_comparison`.
"""
