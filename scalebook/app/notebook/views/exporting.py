"""The notebook as one HTML file, made when somebody downloads it."""

from collections.abc import Callable

from scalebook.app import resources
from scalebook.app.shared import notebooks
from scalebook.training.export.gather import gather
from scalebook.training.export.html_file import as_html
from scalebook.training.notebook.store import Stored


def maker(stored: Stored | None) -> Callable[[], str] | None:
    """What makes the file from the notebook as it is by then; None without one."""
    if stored is None:
        return None
    path, workspace, reader, description = (
        stored.path, resources.workspace(), resources.reader(), resources.description()
    )  # fmt: skip
    return lambda: as_html(gather(workspace, reader, notebooks.read(path), description))
