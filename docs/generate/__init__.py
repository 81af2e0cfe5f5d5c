"""Pages of the reference that are made when the documentation is built. Plain Markdown; no MkDocs, no torch."""
