"""The documents of docs/ within the app: `data` reads them and fits them to a page, `page` draws one. Begin with
`data.HelpPage`.
"""
