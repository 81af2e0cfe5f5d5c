"""The page that sets up a search (`/search?notebook=NAME`). Begin with `page.show`; `widgets` has the form in two
steps, `data` the fields that can vary, the cell to write and its cost.
"""
