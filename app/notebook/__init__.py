"""The page of a notebook. Begin with `page.show`; `cells` draws and runs the cells, `managing` renames, duplicates,
deletes and restores the notebook, `data` moves its runs and drafts to a new name, `widgets` draws the first row and an
experiment's card.
"""
