"""Access to the two servers of a workspace: the host names that they answer to, and the token in their address."""

import argparse
import hashlib
import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

from scalebook.training.base import OWNER_ONLY, ConfigError, Workspace, state_home
from scalebook.training.base.files import kept_secret

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
TOKEN = "token"
"""The query parameter."""
TOKEN_BYTES = 24
_HOST = re.compile(r"(?:[a-z0-9_](?:[a-z0-9._-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::\d{1,5})?")
_TOKEN = re.compile(rb"[A-Za-z0-9_-]{32,}")


@dataclass(frozen=True)
class Access:
    """What both servers require of a request."""

    hosts: tuple[str, ...] = ()
    """Host names, as in the address bar, that the servers answer to besides those of this machine."""
    token: str | None = field(default=None, repr=False)
    """None: no token is required."""
    cookie: str = "scalebook"
    """Name of the cookie that keeps the token; one for each workspace, because all ports of a host share cookies."""

    @classmethod
    def of(cls, workspace: Workspace, hosts: Sequence[str] = (), with_token: bool = True) -> "Access":
        """The access to a workspace; creates its token if there is none. ConfigError if that cannot be stored."""
        token = keep_token(workspace) if with_token else None
        return cls(tuple(hosts), token, f"scalebook-{_digest(workspace)[:12]}")

    @classmethod
    def from_options(cls, options: argparse.Namespace, workspace: Workspace) -> "Access":
        """The access that the options of `add_options` ask for."""
        return cls.of(workspace, options.allow_host, not options.no_token)

    def authorities(self, port: int) -> frozenset[str]:
        """The hosts that a request to the server on `port` may name, also in its origin."""
        own = {f"{name}:{port}" for name in LOOPBACK_NAMES}
        return frozenset({*own, *self.hosts, *(LOOPBACK_NAMES if port == 80 else ())})

    def opening(self, address: str) -> str:
        """The address with the token; it lets a browser in, which is then remembered."""
        return f"{address}/?{TOKEN}={self.token}" if self.token else address

    def arguments(self) -> list[str]:
        """Options for a server's command line, which other users can read: never the token."""
        hosts = [part for host in self.hosts for part in ("--allow-host", host)]
        return hosts if self.token else [*hosts, "--no-token"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add `--allow-host` and `--no-token`, options of `scalebook ui` and of the servers that it starts."""
    parser.add_argument(
        "--allow-host",
        metavar="NAME[:PORT]",
        type=_host,
        action="append",
        default=[],
        help="also accept requests for this host name (of a proxy or tunnel), in the form that the browser's address "
        "bar shows; can be repeated",
    )
    parser.add_argument(
        "--no-token", action="store_true", help="do not require a token: anyone who can reach the ports can use the app"
    )


def as_server(module: str, argv: Sequence[str] | None) -> tuple[Workspace, Access, int]:
    """Parse the command line of a server, `python -m MODULE PORT [options]`; returns workspace, access and port."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}")
    parser.add_argument("port", type=int)
    add_options(parser)
    options = parser.parse_args(argv)
    os.umask(OWNER_ONLY)
    workspace = Workspace.find()
    return workspace, Access.from_options(options, workspace), options.port


def _host(host: str) -> str:
    name = host.lower()
    if not _HOST.fullmatch(name):
        raise argparse.ArgumentTypeError(f"{host!r} is not a host. Use NAME or NAME:PORT, without http://")
    if name in LOOPBACK_NAMES:
        raise argparse.ArgumentTypeError(f"{host!r} would match any port. Add the port: {host}:9000")
    return name


def keep_token(workspace: Workspace) -> str:
    """The token of the workspace; only this user can read its file, which lies outside the workspace's folder, since
    that may come from somebody else.

    The token stays valid until its file is deleted, so that open tabs survive a restart. A file that others can read,
    or that holds no token, is replaced.
    """
    path = state_home() / "tokens" / _digest(workspace)
    try:
        made = kept_secret(path, lambda: secrets.token_urlsafe(TOKEN_BYTES).encode(), _is_token)
    except OSError as error:
        raise ConfigError(
            str(path), f"cannot be used ({error.strerror})", "Set XDG_STATE_HOME to a folder that you own."
        ) from error
    return made.decode("ascii").strip()


def _is_token(content: bytes) -> bool:
    return _TOKEN.fullmatch(content.strip()) is not None


def _digest(workspace: Workspace) -> str:
    return hashlib.sha256(os.fsencode(workspace.root.resolve())).hexdigest()[:24]
