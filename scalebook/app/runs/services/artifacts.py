"""Files that runs leave in the store, read back."""

import tempfile
from pathlib import Path

from scalebook.training.tracking import names
from scalebook.training.tracking.reading import RunReader


def samples_picture(reader: RunReader, run_id: str) -> bytes | None:
    """The newest `samples.png`; None where the model draws none."""
    return read(reader, run_id, names.SAMPLES_PICTURE)


def read(reader: RunReader, run_id: str, name: str) -> bytes | None:
    """A file of the run's root folder; 1 ms in a local store, a request or two at a server."""
    client = reader.client
    if not any(artifact.path == name for artifact in client.list_artifacts(run_id)):
        return None
    with tempfile.TemporaryDirectory(prefix="scalebook-") as folder:
        return Path(client.download_artifacts(run_id, name, folder)).read_bytes()


def config_text(reader: RunReader, run_id: str) -> str:
    """The config that ran; "" where it was not recorded."""
    content = read(reader, run_id, names.CONFIG_ARTIFACT)
    return "" if content is None else content.decode("utf-8", "replace")
