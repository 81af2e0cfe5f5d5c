"""The file with the key by which the nodes of a run recognise each other: one per user, of mode 600."""

import hashlib
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from scalebook.training.base import ConfigError, node_rank
from scalebook.training.engine import served_run

MAKING_S: Final = 5.0
"""How long a node that shares its files with the first node waits for the file, s."""
log = logging.getLogger(__name__)


def key_file(environment: Mapping[str, str]) -> Path:
    """The path of the key file; not that of the user's signing key (`training/base/trust.py`)."""
    if named := environment.get(node_rank.KEY_FILE):
        return Path(named).expanduser()
    state = environment.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "scalebook" / "machines-key"


def key_of_run(environment: Mapping[str, str], name: str, makes: bool) -> served_run.Secret:
    """The key of a DDP run, whose workers meet without a key file (gloo, NCCL). If a file is named, its key is used.
    Otherwise the key follows from the run's `name`: it is no secret, but keeps runs apart and other programs out."""
    if environment.get(node_rank.KEY_FILE):
        return read_key(key_file(environment), makes)
    return served_run.Secret(hashlib.sha256(f"scalebook {name}".encode()).digest())


def read_key(path: Path, makes: bool) -> served_run.Secret:
    """Read the key; with `makes`, on the first node, create it if it is missing. The ConfigError never shows the
    content."""
    until = time.monotonic() + MAKING_S
    while True:
        try:
            return served_run.Secret.read(path)
        except FileNotFoundError:
            if makes:
                _make(path)
            elif time.monotonic() > until:
                why = f"names {path}, which does not exist on this machine"
                raise ConfigError(
                    node_rank.KEY_FILE, why, f"Copy the file from the first node: scp -p FIRST:{path} {path}"
                ) from None
            else:
                time.sleep(0.1)
        except ValueError as error:
            key, _, fix = str(error).removeprefix("key: ").partition(". ")
            raise ConfigError(node_rank.KEY_FILE, key, fix) from error
        except OSError as error:
            raise ConfigError(
                node_rank.KEY_FILE, f"{path} cannot be read ({error.strerror})", "Name another file."
            ) from error


def _make(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        served_run.Secret.made(path)
    except FileExistsError:
        return  # by another process, at this moment
    except OSError as error:
        raise ConfigError(
            node_rank.KEY_FILE, f"{path} cannot be created ({error.strerror})", "Name another file."
        ) from error
    log.warning("A key for the nodes of your runs was created: %s. Copy this file to the same path on each node.", path)
