"""What `scalebook ui` (`app/serve.py`) starts, watches and ends: the `page_server` and the `mlflow_server`, each a
`child` process behind the `gateway`, which asks for the token of `access`. `addresses` says where they are;
`shell` is the HTML before a page. Begin with `page_server`.
"""
