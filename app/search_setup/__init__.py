"""The page on which a search is set up (`/search?notebook=NAME`). Begin with `page.show`; `widgets` has the form in its
steps, `data` the fields that can vary, the cell that is written and what it would do.
"""
