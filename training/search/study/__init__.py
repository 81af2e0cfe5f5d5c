"""The study of a search: where its trials are kept, what is tried next, which trials end early.

Begin with `study.py`. `sampling.py` draws points, `pruners.py` says which trials end early, `storage.py` and
`journal.py` keep them, and `study_reader.py` reads a study that another process writes. Optuna is imported inside
functions only.
"""
