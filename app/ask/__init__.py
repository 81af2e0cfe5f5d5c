"""Questions about an experiment. Begin with `cells`: the dialog that asks one, and the cell that shows its answer.
`data` has what both show, `widgets` and `ratio_chart` draw it.
"""
