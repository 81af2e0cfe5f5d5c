"""The page on which an experiment is composed. Begin with `page.show`; `widgets.ConfigForm` is the form, `fields` its
fields, `data` says where the times of virtual workers can come from.
"""
