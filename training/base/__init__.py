"""What every room uses: errors with key and remedy, files and records, workspaces, trust, where a process is.

Begin with `errors.py` (a person's mistake, said so that it can be mended), `workspace.py` (the folder that a person
works in) and `files/` (reading with care, writing whole). Nothing here knows of training, jobs or notebooks.
"""
