"""The page of a notebook. Begin with `page.show`; `cells` draws the cells and runs them, `managing` does what is
done to the notebook as a whole, `data` what a renaming takes along, `widgets` the first row and an experiment's
card.
"""
