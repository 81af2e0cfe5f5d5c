"""The servers that `scalebook ui` (`app/serve.py`) starts, watches and ends: `page_server` and `mlflow_server`, each a
`child` process behind the `gateway`, which checks the token of `access`. `addresses` records where they are; `shell`
adds to the HTML before a page. Begin with `page_server`.
"""
