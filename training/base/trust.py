"""Whose code may run: that of folders that the user trusts, and of jobs and searches that the user has submitted.

A folder of notebooks may come from a stranger. Its modules are imported, and jobs found in it are run, only after the
user has trusted it. That decision is kept outside the folder (`state_home()`), for this user alone; so is the key that
signs jobs and searches submitted here.
"""

import hashlib
import hmac
import json
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files.safe_reading import leads_out, whole
from scalebook.training.base.files.secret import kept_secret, put_secret
from scalebook.training.base.workspace import LOCAL, SETTINGS, Workspace, state_home

MARK: Final = "trusted"
"""A file of the hidden folder with a random word that the record outside repeats: another folder at the same path does
not have it."""
JOB: Final = ("job.json", "config.yaml")
SEARCH: Final = ("search.json", "search.yaml")
"""The files of a job, and of a search, that determine what runs."""
SIGNATURE: Final = "signature"
KEY_BYTES: Final = 32
FOUND: Final = (
    "found in this folder, but not submitted here. To run it, trust the folder (`scalebook jobs list --trust`, or the "
    "button in the app); otherwise, delete it"
)
OPTION: Final = "--trust"
HELP: Final = "trust this folder from now on: import its modules and run the jobs found in it"


def trusted(workspace: Workspace) -> bool:
    """Whether this user has trusted this folder, at this place, with these modules and this `[notify]`."""
    try:
        identity = json.loads(_record(workspace).read_bytes())
        mark = (workspace.hidden / MARK).read_text(encoding="ascii")
        return bool(mark) and identity == _identity(workspace, mark)
    except (OSError, ValueError):  # nothing was said, or it cannot be read; or scalebook.toml cannot (a ConfigError)
        return False


def trust(workspace: Workspace) -> None:
    """Trust the folder from now on. ConfigError if that cannot be saved."""
    mark = secrets.token_hex(16)
    try:
        workspace.create()
        put_secret(workspace.hidden / MARK, mark.encode())
        put_secret(_record(workspace), json.dumps(_identity(workspace, mark), indent=1).encode())
    except OSError as error:
        raise ConfigError(
            str(error.filename), f"cannot be written ({error.strerror})", "Set XDG_STATE_HOME to a folder that you own."
        ) from error


def within(workspace: Workspace, path: Path) -> bool:
    """Whether the file at `path` may be shown: no link leads out of the folder, or the folder is trusted."""
    return not leads_out(path, workspace.root) or trusted(workspace)


def withdraw(workspace: Workspace) -> None:
    """Stop trusting the folder."""
    _record(workspace).unlink(missing_ok=True)


def importable(workspace: Workspace) -> dict[str, str]:
    """The modules that `scalebook.toml` names, each with the file or folder that would be imported."""
    return {name: _source(workspace, name) for name in Workspace(workspace.root).settings.modules}


def notified(workspace: Workspace) -> list[str]:
    """In words, the command and webhook that `scalebook.toml` names for notifications; they are part of what is
    trusted."""
    notify = Workspace(workspace.root).settings.notify
    words = [f"at the end of a run, the command {list(notify.command)}"] if notify.command else []
    return [*words, *([f"at the end of a run, a message to {notify.webhook}"] if notify.webhook else [])]


def resolve_trust(workspace: Workspace, granted: bool, *, runs: bool = False) -> None:
    """At the start of a command, trust the folder if the user says so, on the command line or when asked.

    `runs`: the command uses the folder's own modules. Then ConfigError if the user does not trust them, or cannot be
    asked. A folder without modules needs no question.
    """
    if granted:
        trust(workspace)
        return
    if trusted(workspace):
        return
    _refuse_links(workspace)
    if not runs or not (modules := importable(workspace)):
        return
    listing = ", ".join(f"{name} ({source})" for name, source in modules.items())
    if sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty():
        print(
            f"{workspace.root} wants to run its own Python code: {listing}.\n"
            "That code can do whatever you can. Read it first if somebody else wrote it.",
            file=sys.stderr,
        )
        print("Trust this folder? (yes/no) ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() == "yes":
            trust(workspace)
            return
    raise ConfigError(
        SETTINGS, f"names modules in {workspace.root}, a folder that you do not trust: {listing}",
        f"Read the modules, then add {OPTION} to the command once, or remove the modules from {SETTINGS}.",
    )  # fmt: skip


def _refuse_links(workspace: Workspace) -> None:
    """ConfigError for a link in the hidden folder: what we write there, logs among it, would go where it leads."""
    inside = sorted(workspace.hidden.iterdir()) if workspace.hidden.is_dir() else []
    for path in (workspace.hidden, *inside):
        if path.is_symlink():
            raise ConfigError(
                str(path), f"is a link to {path.readlink()}, in a folder that you do not trust",
                f"Remove the link or, if you created it, add {OPTION} to the command once.",
            )  # fmt: skip


def sign(folder: Path, name: str, files: Sequence[str]) -> None:
    """Sign `files` of the job or search `name` as submitted by this user."""
    put_secret(folder / SIGNATURE, _signature(folder, name, files, _key()).encode())


def may_run(workspace: Workspace, folder: Path, files: Sequence[str]) -> bool:
    """Whether this user submitted the job or search exactly as it is, or trusts the folder."""
    return signed(folder, files) or trusted(workspace)


def signed(folder: Path, files: Sequence[str]) -> bool:
    """Whether this user submitted the job or search exactly as it is."""
    try:
        signature = whole(folder / SIGNATURE).decode("ascii")
        return hmac.compare_digest(signature, _signature(folder, folder.name, files, _key()))
    except (OSError, ValueError, TypeError):  # missing, or garbage
        return False


def _identity(workspace: Workspace, mark: str) -> dict[str, Any]:
    """What trust is of. The modules' contents are not: whoever may write them here is trusted to."""
    root = workspace.root.resolve()
    notify = notified(workspace)
    more: dict[str, Any] = {"notify": notify} if notify else {}  # trust that was given before such a setting goes on
    if (address := Workspace(root).settings.cluster_address) != LOCAL:
        more["cluster"] = address  # whoever listens there gets this user's token, and the code
    return {"folder": str(root), "inode": root.stat().st_ino, "mark": mark, "modules": importable(workspace), **more}


def _source(workspace: Workspace, name: str) -> str:
    """Where the top of a module lies within the workspace; "installed" where it does not."""
    top = workspace.root / name.partition(".")[0]
    for path in (top, top.with_name(f"{top.name}.py")):
        if path.exists():
            return str(path.resolve())
    return "installed"


def _signature(folder: Path, name: str, files: Sequence[str], key: bytes) -> str:
    digests = [hashlib.sha256(whole(folder / file)).hexdigest() for file in files]
    return _sealed([name, *files, *digests], key)


def sealed(content: Any) -> str:
    """This user's signature of JSON content."""
    return _sealed(content, _key())


def _sealed(content: Any, key: bytes) -> str:
    return hmac.new(key, json.dumps(content).encode(), hashlib.sha256).hexdigest()


def _key() -> bytes:
    """This user's own, made when it is first wanted. ConfigError where it cannot be."""
    path = state_home() / "key"
    try:
        return kept_secret(path, lambda: secrets.token_bytes(KEY_BYTES), lambda key: len(key) == KEY_BYTES)
    except OSError as error:
        raise ConfigError(
            str(path), f"cannot be used ({error.strerror})", "Set XDG_STATE_HOME to a folder that you own."
        ) from error


def _record(workspace: Workspace) -> Path:
    name = hashlib.sha256(str(workspace.root.resolve()).encode()).hexdigest()[:32]
    return state_home() / "trusted" / f"{name}.json"
