"""A notebook with all that it has found, as one file for whoever has neither Scalebook nor the workspace.

Begin with `gathering.py`, which makes a `Document` of a notebook (`experiments.py` gives the blocks of an experiment).
`html_file.py` and `markdown_file.py` write it; `archive_file.py` and `verification.py` are for a stranger who checks
it.
"""

from typing import TYPE_CHECKING

from scalebook.training.lazy import interface

if TYPE_CHECKING:
    from scalebook.training.notebook.export.archive_file import archive
    from scalebook.training.notebook.export.document import ExportedAnswer
    from scalebook.training.notebook.export.gathering import gather
    from scalebook.training.notebook.export.html_file import as_html
    from scalebook.training.notebook.export.markdown_file import as_markdown
    from scalebook.training.notebook.export.verification import verify

__all__ = ["ExportedAnswer", "archive", "as_html", "as_markdown", "gather", "verify"]

__getattr__ = interface(__name__)
