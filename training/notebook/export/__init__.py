"""A notebook with all that it has found, as one file for whoever has neither Scalebook nor the workspace.

Begin with `gather.py`, which makes a `Document` of a notebook (`experiments.py` gives the blocks of an experiment).
`html_file.py` and `markdown_file.py` write it; `archive.py` and `verification.py` are for a stranger who checks it.
"""
