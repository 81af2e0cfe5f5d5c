"""The token by which the nodes of a cluster recognise each other: a file of mode 600, passed to Ray by its path
alone."""

import secrets
import stat
from pathlib import Path

from scalebook.training.base import OWNER_ONLY, ConfigError, state_home
from scalebook.training.base.files import put_secret

BYTES = 32


def cluster_home() -> Path:
    """The folder in which this user's clusters keep their files on this machine."""
    return state_home() / "cluster"


def token_file() -> Path:
    return cluster_home() / "token"


def make_token() -> Path:
    """The token's file, created if it is missing. ConfigError if others can read it."""
    path = token_file()
    if not path.exists():
        put_secret(path, secrets.token_hex(BYTES).encode())
    return found_token()


def found_token() -> Path:
    """The token's file, as created or copied here. ConfigError if it is missing, or others can read it."""
    path = token_file()
    if not path.is_file():
        fix = (
            "Copy the file of this name from the head to this machine, for example with scp, and run chmod 600 on the "
            "copy. Or set --token FILE."
        )
        raise ConfigError(str(path), "is missing, and no node can join without it", fix)
    if stat.S_IMODE(path.stat().st_mode) & OWNER_ONLY:
        raise ConfigError(str(path), "can be read by other users", f"Run chmod 600 {path}.")
    return path


def take_token(source: Path) -> Path:
    """Save the token from another file. ConfigError if that holds none."""
    try:
        word = source.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise ConfigError(str(source), "cannot be read", "Set --token to a copy of the head's token.") from error
    if not word.isalnum() or len(word) < BYTES:
        raise ConfigError(str(source), "does not contain a token", "Set --token to a copy of the head's token.")
    put_secret(token_file(), word.encode())
    return found_token()
