"""Where studies are kept: a journal file, or any database that Optuna knows by its URL."""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalebook.training.base import ConfigError

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

JOURNAL = "journal:"
CONNECT_S = 5
"""Seconds that a PostgreSQL server may take to answer the first call."""
DRIVERS = {"postgresql": "psycopg[binary]", "mysql": "pymysql"}


def journal_path(storage: str) -> Path | None:
    """The file of `journal:PATH`, None of a URL."""
    return Path(storage.removeprefix(JOURNAL)) if storage.startswith(JOURNAL) else None


def open_storage(storage: str) -> "BaseStorage":
    """Optuna's storage for `journal:PATH` or a URL; a journal or tables are made where there are none.

    ConfigError where the driver is not installed, the server does not answer, or the journal cannot be read.
    """
    path = journal_path(storage)
    with store_errors(storage):
        if path is None:
            from optuna.storages import RDBStorage, get_storage

            return get_storage(RDBStorage(storage, engine_kwargs=_engine(storage)))
        path.parent.mkdir(parents=True, exist_ok=True)
        return _journal(path)


def close_storage(storage: "BaseStorage") -> None:
    """Close the connections to a database; a journal holds nothing open."""
    from optuna.storages import RDBStorage

    storage.remove_session()
    behind = getattr(storage, "_backend", None)  # what Optuna's cache reads from
    if isinstance(behind, RDBStorage):
        behind.engine.dispose()


def sync_storage(storage: str) -> None:
    """Flush a journal to the disk, so that it survives a crash of the machine; databases do so anyway."""
    if (path := journal_path(storage)) is not None:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _journal(path: Path) -> "BaseStorage":
    from scalebook.training.search.study.journal import Journal, StudyStorage

    return StudyStorage(Journal(str(path)))


def _engine(url: str) -> dict[str, Any]:
    """A connection that the server dropped is opened again; a server that is away is given up soon."""
    if url.startswith("postgresql"):
        return {"pool_pre_ping": True, "connect_args": {"connect_timeout": CONNECT_S}}
    return {"pool_pre_ping": True}


def mend(storage: str) -> str:
    """Cut off what a crash left of a journal's last line; returns what was done, "" if nothing.

    Only for the one process that writes, before it writes: the next line would be glued to the torn one, and the
    journal could never be read again. Lines before the last are left alone, whatever they are.
    """
    path = journal_path(storage)
    if path is None or not path.is_file():
        return ""
    content = path.read_bytes()
    torn = content[content.rfind(b"\n") + 1 :]
    if not torn.startswith((b"{", b"\0")):  # a machine that went down can leave zeros; anything else is no journal's
        return ""
    os.truncate(path, len(content) - len(torn))
    return f"the journal's last line was incomplete after a crash, so its {len(torn)} bytes were removed"


class StorageLost(RuntimeError):
    """A running study's storage does not answer. What was told before is in it; `Study.open` goes on from there."""


@contextlib.contextmanager
def store_errors(storage: str) -> Iterator[None]:
    """Turns errors of opening a storage into ConfigErrors that say what to do and hold no password."""
    if journal_path(storage) is not None:
        try:
            yield
        except OSError as error:
            raise ConfigError(
                "storage",
                f"{without_password(storage)}: {error.strerror or error}",
                "Free disk space or grant access, then resume the search.",
            ) from error
        return
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

    where = without_password(storage)
    try:
        yield
    except (ImportError, NoSuchModuleError) as error:
        package = next((package_ for kind, package_ in DRIVERS.items() if storage.startswith(kind)), "")
        fix = (
            f'Install it: pip install "{package}".' if package else "Use journal:PATH, sqlite:///PATH or postgresql://."
        )
        raise ConfigError("storage", f"the driver for {where} is not installed", fix) from error
    except ArgumentError:
        raise ConfigError(
            "storage", f"{where} is not a database address", "Use postgresql://USER:PASSWORD@HOST:PORT/NAME."
        ) from None
    except (SQLAlchemyError, StorageInternalError) as error:
        cause = error.__cause__ if isinstance(error, StorageInternalError) and error.__cause__ else error
        raise ConfigError(
            "storage", f"{where} cannot be used: {_first_line(cause, storage)}",
            "Start the server, create the database, or correct the address. The study then resumes where it stopped.",
        ) from None  # fmt: skip


@contextlib.contextmanager
def store_answers(storage: str) -> Iterator[None]:
    """Turns errors of a running study's storage into StorageLost, since no config is to blame."""
    try:
        with store_errors(storage):
            yield
    except ConfigError as error:
        if error.problem.key != "storage":
            raise
        raise StorageLost(str(error)) from None


def without_password(storage: str) -> str:
    """The address without its password; a path has none."""
    if storage.startswith(JOURNAL):
        return storage
    hidden = re.sub(r"((?:^|://)[^:/@]*):(?!//).*@", r"\1:***@", storage)
    return re.sub(r"(password=)[^&]*", r"\1***", hidden)


def _first_line(error: BaseException, storage: str) -> str:
    """The driver's own words without what SQLAlchemy adds, nor the password."""
    original = getattr(error, "orig", None) or error
    line = next((line.strip() for line in str(original).splitlines() if line.strip()), type(original).__name__)
    credentials = re.search(r"://[^:/@]*:(.*)@", storage)
    return line.replace(credentials.group(1), "***") if credentials and credentials.group(1) else line
