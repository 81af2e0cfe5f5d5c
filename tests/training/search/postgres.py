"""A PostgreSQL server of the tests' own: made anew, with a password, on a free port of this machine."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.ports import kernels_choice

PASSWORD = "hush-hush"
DEADLINE_S = 60


@dataclass(frozen=True)
class Server:
    """`url` has no database; `stop` and `start` can be called again and again."""

    folder: Path
    port: int
    user: str | None
    """Who runs it: PostgreSQL refuses to be root."""

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://me:{PASSWORD}@127.0.0.1:{self.port}"

    def call(self, program: str, *words: str) -> None:
        """Run one of PostgreSQL's programs; its output becomes the error where it fails."""
        path = _binaries() / program
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "PGPASSWORD": PASSWORD}
        log = self.folder / "calls.log"
        with log.open("ab") as out:  # not a pipe: the server inherits it
            done = subprocess.run(
                [str(path), *words], env=environment, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT, timeout=DEADLINE_S, check=False, user=self.user, group=self.user,
                extra_groups=[] if self.user else None,
            )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{program} failed: {log.read_text(encoding='utf-8')[-2000:]}")

    def start(self) -> None:
        told = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self.folder} -c fsync=off"
        self.call("pg_ctl", "-D", str(self.folder / "data"), "-o", told, "-w", "-l", str(self.folder / "log"), "start")

    def stop(self) -> None:
        self.call("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "-w", "stop")


@contextmanager
def server() -> Iterator[Server]:
    """A running server with the empty database `studies`; skips where PostgreSQL is not installed."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    if _find() is None:
        pytest.skip("PostgreSQL is not installed (Debian: postgresql)")
    user = None
    if os.geteuid() == 0:
        user = "postgres" if any(one.pw_name == "postgres" for one in pwd.getpwall()) else "nobody"
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    made = Server(folder, kernels_choice(), user)
    try:
        (folder / "password").write_text(PASSWORD, encoding="utf-8")
        if user is not None:
            for path in (folder, folder / "password"):
                shutil.chown(path, user)
        told = ("-U", "me", "-A", "scram-sha-256", "--pwfile", str(folder / "password"))
        made.call("initdb", "-D", str(folder / "data"), *told, "--no-sync", "-E", "UTF8")
        made.start()
        try:
            made.call("createdb", "-h", "127.0.0.1", "-p", str(made.port), "-U", "me", "studies")
            yield made
        finally:
            made.stop()
    finally:
        shutil.rmtree(folder)


def _find() -> Path | None:
    """The folder of PostgreSQL's programs: on the path, else Debian's newest."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    return max(Path("/usr/lib/postgresql").glob("*/bin"), default=None, key=lambda one: float(one.parent.name))


def _binaries() -> Path:
    found = _find()
    assert found is not None, "PostgreSQL is not installed"
    return found
