"""The folder a user works in: notebooks, and one hidden folder with everything that running them produces."""

import os
import stat
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files.safe_reading import read_text

HIDDEN = ".scalebook"
SETTINGS = "scalebook.toml"
KNOWN: Final = ("cluster", "modules", "notify")
LOCAL: Final = "local"
"""The `address` for no cluster: jobs run on this machine."""
OWNER_ONLY = 0o077
"""The umask of every process that writes into a hidden folder."""


def state_home() -> Path:
    """The folder, outside workspaces, where Scalebook keeps this user's decisions about them. It is not created
    here."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "scalebook"


@dataclass(frozen=True)
class NotifySettings:
    """`[notify]`: what is notified when a run or a search has ended. False if nothing is."""

    command: tuple[str, ...] = ()
    """A program and its arguments; it gets a sentence as last argument, and JSON on its standard input."""
    webhook: str = ""
    """An address that gets the same JSON by POST."""

    def __bool__(self) -> bool:
        return bool(self.command or self.webhook)


@dataclass(frozen=True)
class ClusterSettings:
    """`[cluster]`: the Ray cluster whose nodes run the jobs. False if they run on this machine."""

    address: str = LOCAL
    """`local`; `auto`: the cluster that `scalebook cluster start` has started or joined here; or `host:port`."""
    files: Literal["auto", "copied"] = "auto"
    """`auto`: a node that has the workspace's folder at the same path works in it; other nodes get copies."""
    environment: tuple[str, ...] = ()
    """The environment variables of whoever submits a job that it gets on other nodes. They are not encrypted."""

    def __bool__(self) -> bool:
        return self.address != LOCAL


@dataclass(frozen=True)
class WorkspaceSettings:
    """The settings in `scalebook.toml`."""

    modules: tuple[str, ...] = ()
    """Modules with the user's own LightningModules and LightningDataModules."""
    notify: NotifySettings = NotifySettings()
    cluster_table: object = None
    """`[cluster]` as it is written, None if it is missing: what needs no cluster does not check it."""

    @property
    def cluster(self) -> ClusterSettings:
        """`[cluster]`. Raises ConfigError."""
        return _cluster({} if self.cluster_table is None else self.cluster_table)

    @property
    def cluster_address(self) -> str:
        """The cluster's address as it is written, right or wrong."""
        table = self.cluster_table
        written = table.get("address", LOCAL) if isinstance(table, dict) else table
        return LOCAL if written is None else str(written)

    @property
    def clustered(self) -> bool:
        """Whether jobs run on a cluster, also if `[cluster]` is wrong."""
        return self.cluster_address != LOCAL


def sqlite_address(path: Path) -> str:
    """The address under which SQLAlchemy opens the file `path`, whatever characters it has.

    It begins with the driver's name if characters are escaped: otherwise MLflow would create a folder of the escaped
    name.
    """
    try:
        database = quote(str(path), safe=" +/")  # as SQLAlchemy 2.1 writes and reads it
    except UnicodeEncodeError as error:
        raise ConfigError("workspace", f"is in {path}, a path that is not UTF-8", "Rename the folder.") from error
    return f"sqlite:///{database}" if database == str(path) else f"sqlite+pysqlite:///{database}"


@dataclass(frozen=True)
class Workspace:
    """Paths of one workspace. Creating the object touches no disk; `create` makes the hidden folder."""

    root: Path

    @classmethod
    def find(cls, start: Path | None = None) -> "Workspace":
        """The workspace around `start` (default: the current folder).

        `SCALEBOOK_WORKSPACE` wins; then the nearest folder upwards that has `.scalebook/` or `scalebook.toml`; then
        `notebooks/` below `start`, if there is one; then `start` itself.
        """
        if named := os.environ.get("SCALEBOOK_WORKSPACE"):
            return cls(Path(named).resolve())
        start = (start or Path.cwd()).resolve()
        for folder in (start, *start.parents):
            if (folder / HIDDEN).is_dir() or (folder / SETTINGS).is_file():
                return cls(folder)
        return cls(start / "notebooks" if (start / "notebooks").is_dir() else start)

    def create(self) -> "Workspace":
        """Create the hidden folder and its parts if they are missing; no other user may read it.

        If others can read it, their access is removed; ConfigError if this user may not do that.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        self.hidden.mkdir(mode=0o700, exist_ok=True)
        if stat.S_IMODE(self.hidden.stat().st_mode) & OWNER_ONLY:
            self._close()
        for folder in (self.jobs, self.studies, self.cache, self.artifacts):
            folder.mkdir(mode=0o700, exist_ok=True)
        return self

    def _close(self) -> None:
        try:
            self.hidden.chmod(0o700)
        except OSError as error:
            raise ConfigError(
                str(self.hidden),
                f"is accessible to other users, and its permissions cannot be changed ({error.strerror})",
                "Copy the notebooks into a folder that you own.",
            ) from error

    @property
    def hidden(self) -> Path:
        return self.root / HIDDEN

    @property
    def jobs(self) -> Path:
        return self.hidden / "jobs"

    @property
    def studies(self) -> Path:
        return self.hidden / "studies"

    @property
    def cache(self) -> Path:
        return self.hidden / "cache"

    @property
    def history(self) -> Path:
        """The folder of earlier states of notebooks, created with the first one."""
        return self.hidden / "history"

    @property
    def artifacts(self) -> Path:
        return self.hidden / "artifacts"

    @property
    def database(self) -> Path:
        return self.hidden / "mlflow.db"

    def tracking_uri(self) -> str:
        """Where runs are recorded: `MLFLOW_TRACKING_URI` when set, else the workspace's own SQLite file."""
        return os.environ.get("MLFLOW_TRACKING_URI") or sqlite_address(self.database)

    def notebooks(self) -> list[Path]:
        """The notebooks, by name; not files that begin with a dot or lie in subfolders."""
        return sorted(path for path in self.root.glob("*.md") if not path.name.startswith("."))

    @cached_property
    def settings(self) -> WorkspaceSettings:
        """The settings in `scalebook.toml`, or the defaults if it is missing."""
        path = self.root / SETTINGS
        if not path.is_file():
            return WorkspaceSettings()
        text = read_text(path)
        try:
            content = tomllib.loads(text)
        except (ValueError, RecursionError) as error:  # no TOML, a number of more than 4,300 digits, lists in lists
            raise ConfigError(SETTINGS, f"is not TOML ({str(error)[:100]})", "Fix the file.") from error
        if unknown := set(content) - set(KNOWN):
            raise ConfigError(f"{SETTINGS}: {min(unknown)}", "is not a setting", f"Known settings: {', '.join(KNOWN)}.")
        modules = content.get("modules", [])
        if not isinstance(modules, list) or not all(isinstance(name, str) for name in modules):
            raise ConfigError(f"{SETTINGS}: modules", "must be a list of names", 'Set modules = ["my_package.models"].')
        for name in modules:
            if not all(part.isidentifier() for part in name.split(".")):
                problem = f"has {name!r}, which is not the name of a module"
                raise ConfigError(f"{SETTINGS}: modules", problem, 'Set modules = ["my_package.models"].')
        return WorkspaceSettings(tuple(modules), _notify(content.get("notify", {})), content.get("cluster"))


def _notify(table: object) -> NotifySettings:
    key = f"{SETTINGS}: notify"
    if not isinstance(table, dict) or set(table) - {"command", "webhook"}:
        raise ConfigError(
            key, "is not a table with command and webhook", 'Add a section [notify] with command = ["program"].'
        )
    command, webhook = table.get("command", []), table.get("webhook", "")
    if not isinstance(command, list) or not all(isinstance(word, str) and "\0" not in word for word in command):
        problem = "must be a list of strings: a program, then its arguments"
        raise ConfigError(f"{key}.command", problem, 'Set command = ["notify-send", "Scalebook"].')
    if not isinstance(webhook, str) or (webhook and not webhook.startswith(("https://", "http://"))):
        raise ConfigError(f"{key}.webhook", "must be an address", 'Set webhook = "https://example.org/hook".')
    return NotifySettings(tuple(command), webhook)


def _cluster(table: object) -> ClusterSettings:
    key = f"{SETTINGS}: cluster"
    if not isinstance(table, dict) or set(table) - {"address", "files", "environment"}:
        words = "is not a table with address, files and environment"
        raise ConfigError(key, words, 'Add a section [cluster] with address = "auto".')
    address, files = table.get("address", LOCAL), table.get("files", "auto")
    variables = table.get("environment", [])
    if not isinstance(address, str) or not (address in (LOCAL, "auto") or is_host_and_port(address)):
        fix = 'Set address = "auto", "local", or the address of a head node, such as "10.0.0.1:6379".'
        raise ConfigError(f"{key}.address", f"is {str(address)[:80]!r}, which is not the address of a cluster", fix)
    if not isinstance(variables, list) or not all(isinstance(name, str) and name.isidentifier() for name in variables):
        fix = 'Set environment = ["DATA_SET"], without values.'
        raise ConfigError(f"{key}.environment", "is not a list of variable names", fix)
    if files == "auto" or files == "copied":
        return ClusterSettings(address, files, tuple(variables))
    raise ConfigError(f"{key}.files", "is neither auto nor copied", 'Set files = "copied", or remove it.')


def is_host_and_port(address: str) -> bool:
    """Whether `address` is `host:port`, with a port that Ray takes."""
    host, _, port = address.rpartition(":")
    plain = all(letter.isalnum() or letter in ".-" for letter in host) and host.isascii()
    return bool(host) and plain and port.isascii() and port.isdigit() and 1024 <= int(port) <= 65535
