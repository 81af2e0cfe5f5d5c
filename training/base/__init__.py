"""What every package uses: errors with key and remedy, files and records, workspaces, trust, node ranks.

Begin with `errors.py` (how a user's mistake is reported), `workspace.py` (the folder that a user works in) and `files/`
(safe reading, atomic writing). Nothing here knows of training, jobs or notebooks.
"""
