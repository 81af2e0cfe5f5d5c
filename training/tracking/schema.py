"""Checks the version of a database before MLflow opens it, without changing it.

MLflow creates missing tables even in a database of another version, and refuses that database only afterwards. The
versions that it knows are read from its migration files, without importing them.
"""

import importlib.metadata
import importlib.util
import re
import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from scalebook.training.base import ConfigError

if TYPE_CHECKING:
    from sqlalchemy import URL

MIGRATIONS: Final = Path("store", "db_migrations", "versions")
REVISION: Final = re.compile(r"^(revision|down_revision)\b[^=\n]*= *[\"']([0-9a-f]+)[\"']", re.MULTILINE)
DATABASE: Final = re.compile(r"(postgresql|mysql|mssql|sqlite)(\+\w+)?://")
QUESTION: Final = "SELECT version_num FROM alembic_version"
TABLES: Final = frozenset({"experiments", "runs"})
"""Tables that MLflow has always had: a database with them and without a version is of one of the first versions."""


class Revisions(NamedTuple):
    """The schema versions that the installed MLflow knows, from its migrations."""

    newest: str
    known: frozenset[str]


def require_known(address: str) -> None:
    """ConfigError for a database of another MLflow version. Other stores are not checked, nor a database that is empty
    or does not answer."""
    if not DATABASE.match(address):
        return
    import sqlalchemy  # 0.1 s; MLflow does it anyway

    try:
        url = sqlalchemy.make_url(address)
    except sqlalchemy.exc.ArgumentError:  # as MLflow will say
        return
    is_file = url.get_backend_name() == "sqlite" and url.database
    revision = _of_file(Path(url.database or "")) if is_file else _of_server(url)
    revisions = _revisions()
    if revision is None or revisions is None or revision == revisions.newest:
        return
    version, safe_url = importlib.metadata.version("mlflow"), str(url.render_as_string(hide_password=True))
    if revision and revision not in revisions.known:
        raise ConfigError(
            safe_url, (
                f"was written by a newer MLflow than {version}, so the installed MLflow does not know database "
                f"version {revision}"
            ),
            "Install a newer MLflow: pip install --upgrade mlflow. Nothing was changed.",
        )  # fmt: skip
    older = revision or "one of the first"
    raise ConfigError(
        safe_url, f"was written by an older MLflow than {version}, so the database version is {older} instead of "
                  f"{revisions.newest}",
        f"Make a copy of the database, then run: mlflow db upgrade '{safe_url}'. Nothing was changed.",
    )  # fmt: skip


@cache
def _revisions() -> Revisions | None:
    """Those of the MLflow that is installed; None where its files lie elsewhere than in those that we know."""
    spec = importlib.util.find_spec("mlflow")
    folder = Path(spec.origin).parent / MIGRATIONS if spec and spec.origin else None
    files = [*folder.glob("*.py")] if folder and folder.is_dir() else []
    pairs = [dict(REVISION.findall(path.read_text(encoding="utf-8"))) for path in files]
    ids = frozenset(pair["revision"] for pair in pairs if "revision" in pair)
    newest = [*ids - {pair.get("down_revision") for pair in pairs}]
    return Revisions(newest[0], ids) if len(newest) == 1 else None


def _of_file(path: Path) -> str | None:
    """The version of an SQLite file; "" for one without, None for a file that is new, empty or no database."""
    if not path.is_file():
        return None
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=10)) as connection:
            names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            row = connection.execute(QUESTION).fetchone() if "alembic_version" in names else None
    except sqlite3.Error:  # MLflow says what is wrong with it
        return None
    return row[0] if row else "" if names >= TABLES else None


def _of_server(url: "URL") -> str | None:
    """The same of a database that a server has."""
    import sqlalchemy

    try:
        engine = sqlalchemy.create_engine(url)
        try:
            names = set(sqlalchemy.inspect(engine).get_table_names())
            with engine.connect() as connection:
                row = connection.execute(sqlalchemy.text(QUESTION)).first() if "alembic_version" in names else None
        finally:
            engine.dispose()
    except (sqlalchemy.exc.SQLAlchemyError, ImportError):  # MLflow says what is wrong with it
        return None
    return row[0] if row else "" if names >= TABLES else None
