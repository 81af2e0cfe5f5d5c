"""The page of one run (`/runs?run=ID`). Begin with `page.show`; `data` says where the run comes from and what has
changed since, `widgets` draws it in the order of the page, `workers` what each worker did.
"""
