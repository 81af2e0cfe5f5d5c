"""`scalebook cluster`: start, show and stop the Ray cluster on whose machines jobs run."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from scalebook.training.base import ConfigError
from scalebook.training.base.files import CommandParser, add_command
from scalebook.training.cluster import ray_daemons, token_file

PAGE: Final = "how-to/cluster.md"


def main(argv: Sequence[str]) -> int:
    """Exit code: 0 done; 1 if Ray did not start or end, or nothing runs. Raises ConfigError for mistakes."""
    options = parser().parse_args(argv)
    action: Callable[[Any], int] = options.action
    try:
        return action(options)
    except RuntimeError as error:
        print(f"scalebook: {error}")
        return 1


def parser() -> CommandParser:
    """The parser of `scalebook cluster`."""
    parser = CommandParser(
        "scalebook cluster",
        about="Start, show and stop the Ray cluster that jobs run on.\n\n"
        'A workspace uses the cluster when its scalebook.toml has the table [cluster] with address = "auto".',
        example="cluster start --host 10.0.0.1",
        page=PAGE,
    )
    commands = parser.add_subparsers(required=True, metavar="start|status|stop")
    start = add_command(
        commands,
        "start",
        "Start the head of a cluster here, or join this machine to a cluster.",
        "cluster start --join 10.0.0.1:6379 --token token",
        PAGE,
    )
    start.add_argument("--join", metavar="HOST:PORT", help="address of the head of the cluster that this machine joins")
    start.add_argument(
        "--host", default="",
        help="address at which other machines reach this one. With this option, Ray listens on all addresses of this "
             f"machine. Without it, the head listens only on {ray_daemons.LOOPBACK}, and no other machine can join",
    )  # fmt: skip
    start.add_argument("--port", type=int, help=f"port of the head (default: {ray_daemons.PORT}; 0: any free port)")
    start.add_argument("--name", default="", help="name of this machine (default: its host name)")
    start.add_argument("--cores", type=int, help="number of cores that jobs may use (default: all cores)")
    start.add_argument(
        "--token",
        type=Path,
        metavar="FILE",
        help="file with a copy of the head's token. The token is then also stored on this machine",
    )
    start.set_defaults(action=_start)
    about = "Show what runs on this machine and where it listens."
    add_command(commands, "status", about, "cluster status", PAGE).set_defaults(action=_status)
    about = "Stop all cluster processes on this machine, including jobs."
    add_command(commands, "stop", about, "cluster stop", PAGE).set_defaults(action=_stop)
    return parser


def _start(options: Any) -> int:
    if options.cores is not None and options.cores < 1:
        raise ConfigError(
            "--cores", f"is {options.cores}", "Set it to the number of cores that jobs may use, at least 1."
        )
    if options.join:
        if options.port is not None:
            raise ConfigError(
                "--port",
                "has no effect with --join, because the address after --join includes the head's port",
                "Remove it.",
            )
        node = ray_daemons.join(options.join, options.host, options.name, options.cores, token=options.token)
        print(f"{node.name} has joined the cluster at {node.address}.")
        return 0
    if options.token is not None:
        raise ConfigError("--token", "is only for --join", "Remove it, because a head creates its own token.")
    port = ray_daemons.PORT if options.port is None else options.port
    node = ray_daemons.start_head(options.host or ray_daemons.LOOPBACK, port, options.name, options.cores)
    print(f"The head of a cluster runs on {node.name}, at {node.address}. Its token: {token_file()}")
    if node.loopback:
        print(
            "The head listens only on this machine. To let other machines join, run: scalebook cluster stop && "
            "scalebook cluster start --host ADDRESS"
        )
    else:
        print(f"On another machine, copy the token and run: scalebook cluster start --join {node.address} --token FILE")
        print(
            "Ray listens on all addresses of this machine, and the token does not encrypt the traffic. Use a "
            "firewall\nor VPN so that only machines that you trust can reach Ray."
        )
    print('Jobs run on the cluster if scalebook.toml has: [cluster] address = "auto"')
    return 0


def _status(_options: Any) -> int:
    node = ray_daemons.here()
    if node is None:
        print(
            "This machine is not part of a cluster, because `scalebook cluster start` has started no Ray processes "
            "here."
        )
        return 1
    print(_words(node))
    for place in ray_daemons.listening(node):
        print(f"  listens on {place}")
    return 0


def _words(node: ray_daemons.Node) -> str:
    what = "head of the cluster at" if node.head else "part of the cluster at"
    return f"{node.name}: {what} {node.address}, process {node.process.pid}"


def _stop(_options: Any) -> int:
    if ray_daemons.stop():
        print("All Ray processes that were started here have ended.")
        return 0
    print("`scalebook cluster start` has started no Ray processes here.")
    return 1
