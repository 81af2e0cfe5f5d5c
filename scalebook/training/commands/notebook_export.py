"""`scalebook notebook export`: a notebook with its results, written where the person says."""

import os
import tempfile
from pathlib import Path
from typing import Final

from scalebook.training.config.description import Description
from scalebook.training.errors import ConfigError, one_line
from scalebook.training.export.archive import archive
from scalebook.training.export.gather import gather
from scalebook.training.export.html_file import as_html
from scalebook.training.export.markdown_file import as_markdown
from scalebook.training.export.verification import verify
from scalebook.training.files.room import understood
from scalebook.training.notebook.store import Stored
from scalebook.training.tracking.reading import RunReader
from scalebook.training.tracking.starting import open_store
from scalebook.training.workspace import Workspace

FORMATS: Final = ("html", "markdown")
ARCHIVE: Final = "archive"
MARK: Final = b"exported by Scalebook on "
"""In every text that this has written: such a one may be replaced."""


def export(
    workspace: Workspace, stored: Stored, description: Description, wanted: str | None, output: Path | None
) -> int:
    """Write the export and print where it is. `wanted` is one of FORMATS, or ARCHIVE; None goes by the name of
    `output`.

    ConfigError where `output` cannot be written, or is a file that is no export.
    """
    kind = wanted or ("markdown" if output is not None and output.suffix.lower() == ".md" else "html")
    path = output or _beside(stored.path, kind)
    _refuse(path, given=output is not None)
    open_store(workspace)  # made where there is none yet
    if kind == ARCHIVE:
        return _archive(workspace, stored, description, path)
    document = gather(workspace, RunReader(workspace.tracking_uri()), stored, description)
    with understood(path.parent):
        if kind == "html":
            _write(path, as_html(document), workspace)
        else:
            pictures = path.with_name(f"{path.stem}-pictures")
            made = as_markdown(document, pictures.name)
            _write(path, made.text, workspace)
            for old in pictures.glob("chart-*.svg"):
                old.unlink()
            for name, svg in made.pictures.items():
                _write(pictures / name, svg, workspace)
    print(path)
    return 0


def _archive(workspace: Workspace, stored: Stored, description: Description, path: Path) -> int:
    """Written only once it has been read back: whoever gets it is told the same."""
    content = archive(workspace, RunReader(workspace.tracking_uri()), stored, description)
    with understood(path.parent), tempfile.TemporaryDirectory() as folder:
        trial = Path(folder) / path.name
        trial.write_bytes(content)
        if differences := verify(trial)[1]:
            remedy = "Write paths in its configs from the notebook's own folder."
            raise ConfigError(
                stored.path.name, f"says another thing without this machine's paths: {differences[0]}", remedy
            )
        _write(path, content, workspace)
    print(path)
    return 0


def verified(path: Path) -> int:
    """Print what an archive claims, and in what that differs from what its curves say; 1 where it does."""
    archived, differences = verify(path)
    for name, claim in archived.items():
        locked = f" (as locked by its first run: {claim.locked})" if claim.locked else ""
        print(one_line(f"{name}: {claim.verdict}{locked}: {claim.statement}"))
    for difference in differences:
        print(one_line(f"DIFFERS: {difference}", 2000))
    count = f"{len(archived)} claim{'' if len(archived) == 1 else 's'}"
    print(
        f"{count}, judged anew from the archived curves: "
        + (f"{len(differences)} difference{'' if len(differences) == 1 else 's'}" if differences else "the same")
    )
    return 1 if differences else 0


def _beside(notebook: Path, kind: str) -> Path:
    """In a folder of its own where it is Markdown: beside the notebook it would be taken for one."""
    if kind in ("html", ARCHIVE):
        return notebook.with_suffix(".html" if kind == "html" else ".zip")
    return notebook.with_name(f"{notebook.stem}-export") / notebook.name


def _refuse(path: Path, *, given: bool) -> None:
    if path.is_dir():
        raise ConfigError("-o", f"is {path}, a folder", "Name a file.")
    if given and not path.parent.is_dir():
        raise ConfigError("-o", f"is {path}, in a folder that does not exist", "Create the folder first.")
    if path.exists() and MARK not in path.read_bytes():
        raise ConfigError("-o", f"would replace {path}, which is not an export", "Name another file.")


def _write(path: Path, content: str | bytes, workspace: Workspace) -> None:
    """For whoever the workspace's folder is for, as a notebook: the umask of commands is for its hidden folder."""
    mode = workspace.root.stat().st_mode
    if not path.parent.is_dir():
        path.parent.mkdir()
        path.parent.chmod(mode & 0o755)
    with path.open("wb") as file:
        os.fchmod(file.fileno(), mode & 0o644)
        file.write(content if isinstance(content, bytes) else content.encode())
