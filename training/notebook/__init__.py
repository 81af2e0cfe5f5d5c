"""The notebook file: Markdown with fenced YAML cells, read and written without losing a byte. No torch in here.

Begin with `parse.py` and `cells.py` (what a notebook consists of), `store.py` (on disk) and `edit.py`. `comparison.py`
compares experiments, `results.py` finds their runs. `claims/` judges what a notebook says, `export/` makes a document
of it.
"""
