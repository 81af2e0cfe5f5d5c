"""Files that runs leave in the store, read back."""

import tempfile
from pathlib import Path
from urllib.parse import unquote, urlsplit

from scalebook.training.files.reading import MOST_OWN_BYTES
from scalebook.training.tracking import names
from scalebook.training.tracking.reading import RunReader
from scalebook.training.trust import within
from scalebook.training.workspace import Workspace, sqlite_address


def samples_picture(reader: RunReader, run_id: str) -> bytes | None:
    """The newest `samples.png`; None where the model draws none."""
    return read(reader, run_id, names.SAMPLES_PICTURE)


def read(reader: RunReader, run_id: str, name: str) -> bytes | None:
    """A file of the run's root folder; 1 ms in a local store, a request or two at a server. None also of one with more
    than MOST_OWN_BYTES."""
    client = reader.client
    sizes = {} if leads_out(reader, run_id) else {one.path: one.file_size or 0 for one in client.list_artifacts(run_id)}
    if sizes.get(name, MOST_OWN_BYTES + 1) > MOST_OWN_BYTES:
        return None
    with tempfile.TemporaryDirectory(prefix="scalebook-") as folder:
        return Path(client.download_artifacts(run_id, name, folder)).read_bytes()


def leads_out(reader: RunReader, run_id: str) -> bool:
    """Whether a run of the folder's own store says that its files are elsewhere on this machine, or a link does.

    The store may be a stranger's, who would have other files of this user's shown.
    """
    workspace = Workspace.find()
    if reader.tracking_uri != sqlite_address(workspace.database):
        return False
    place = urlsplit(reader.client.get_run(run_id).info.artifact_uri)
    if place.scheme not in ("", "file"):
        return False
    return not within(workspace, Path(unquote(place.path)))


def config_text(reader: RunReader, run_id: str) -> str:
    """The config that ran; "" where it was not recorded."""
    content = read(reader, run_id, names.CONFIG_ARTIFACT)
    return "" if content is None else content.decode("utf-8", "replace")
