"""Artifact addresses of a workspace that was moved or copied.

MLflow stores absolute addresses, of experiments and of each run. After a move they name a folder that no longer exists,
and after a copy the folder of the original, into which runs of the copy would then write.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from scalebook.training.base import HIDDEN, Workspace, sqlite_address

COLUMNS: Final = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)
"""Tables of MLflow's database, each with a column that holds addresses of artifacts."""
WAIT_S: Final = 30.0
"""How long another process may hold the database, s."""


def adopt_artifacts(tracking_uri: str) -> None:
    """Let the addresses in a workspace's own database name that workspace's own folder of artifacts.

    Called by whoever opens a store. Does nothing for other stores, nor for a database that cannot be written. Unchanged
    are addresses that name this very folder by another path (a link, a mount), and those of files that exist only
    where they are: an earlier version has written them into the original of a copy.
    """
    if (workspace := owner_of(tracking_uri)) is None or not workspace.database.is_file():
        return
    own = workspace.artifacts.resolve()
    try:
        with closing(sqlite3.connect(workspace.database, timeout=WAIT_S)) as connection:
            changes = [change for column in COLUMNS for change in _changes(connection, *column, own)]
            if changes:
                with connection:
                    for statement, *values in changes:
                        connection.execute(statement, values)
    except sqlite3.Error as error:  # read-only, or not MLflow's: MLflow says what is wrong with it
        if "locked" in str(error):
            raise


def owner_of(tracking_uri: str) -> Workspace | None:
    """The workspace whose own database this is; None for any other store."""
    if not tracking_uri.startswith("sqlite"):
        return None
    database = Path("/", unquote(urlsplit(tracking_uri).path).lstrip("/"))
    workspace = Workspace(database.parent.parent)
    return workspace if workspace.database == database and sqlite_address(database) == tracking_uri else None


def store_with(run_id: str, workspace: Workspace, recorded: str) -> str:
    """The address of the store that has this run: `recorded` when it was submitted, or the workspace's own database if
    that was another workspace's own then, which this one was moved or copied from."""
    former = owner_of(recorded)
    if former is None or former.database == workspace.database or not workspace.database.is_file():
        return recorded
    with closing(sqlite3.connect(workspace.database, timeout=WAIT_S)) as connection:
        try:
            row = connection.execute("SELECT 1 FROM runs WHERE run_uuid = ?", (run_id,)).fetchone()
        except sqlite3.OperationalError:  # it has no tables
            row = None
    return recorded if row is None else sqlite_address(workspace.database)


def _changes(connection: sqlite3.Connection, table: str, column: str, own: Path) -> Iterator[tuple[str, str, str]]:
    """Statements, each with the new and the old address, for what names another workspace's folder of artifacts."""
    mark = f"/{HIDDEN}/{own.name}"
    here = own.as_uri()
    rows = connection.execute(
        f"SELECT DISTINCT {column} FROM {table} WHERE {column} LIKE ? AND substr({column}, 1, ?) <> ?",
        (f"%{mark}%", len(here), here),
    )
    is_here: dict[Path, bool] = {own: True}
    for (address,) in rows:
        folder, _, rest = address.partition(mark)
        if rest and not rest.startswith("/"):
            continue
        former = Path(unquote(urlsplit(folder).path) + mark)
        if former not in is_here:
            is_here[former] = former.is_dir() and own.is_dir() and former.samefile(own)
        inside = unquote(rest).strip("/")
        if is_here[former] or (inside and (former / inside).exists() and not (own / inside).exists()):
            continue
        yield f"UPDATE {table} SET {column} = ? WHERE {column} = ?", f"{here}{rest}", address
