"""`scalebook ui [FOLDER]`: the pages, MLflow and the supervisor of one workspace, started, watched and ended together.

Runs belong to the supervisor, not to this process: they go on when it ends.
"""

import argparse
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TextIO, cast

from scalebook.app.serving.access import Access, add_options
from scalebook.app.serving.addresses import Addresses, only_one
from scalebook.app.serving.child import Child, ServerDied, end_leftover
from scalebook.app.serving.mlflow_server import MLFLOW_LOG, mlflow_server, remote_address
from scalebook.app.serving.page_server import PAGES_LOG, page_server
from scalebook.app.shared import links
from scalebook.training.base import OWNER_ONLY, ConfigError, Workspace, safe_path, trust
from scalebook.training.base.files import CommandParser, EscapingStream, refusals_told, require_room
from scalebook.training.experiments import catalogue
from scalebook.training.jobs import configured_executor, supervisor_handle
from scalebook.training.tracking import require_known

log = logging.getLogger(__name__)
RESTARTS = 3  # a server that dies more often than this within RESTART_WINDOW_S stays dead
RESTART_WINDOW_S = 120.0
MAKE_STORE = """
import sys, pathlib
from scalebook.training.tracking.run_start import open_store
from scalebook.training.base import Workspace
open_store(Workspace(pathlib.Path(sys.argv[1])))
"""  # in a process of its own: MLflow takes 200 MB that this one does not need
STORE_DEADLINE_S = 120.0  # a fresh MLflow database takes 3-5 s of migrations


class Interrupted(Exception):
    """SIGTERM or Ctrl+C."""


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 after Ctrl+C, or if the workspace is served already; 1 if a server cannot start; 2 for a mistake."""
    options = parser().parse_args(argv)
    os.environ.setdefault(
        "MLFLOW_DISABLE_TELEMETRY", "true"
    )  # here and in all that this starts: nobody is told of runs
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=cast(TextIO, EscapingStream(sys.stdout)))
    workspace = Workspace(options.folder.resolve()) if options.folder else Workspace.find()
    if not workspace.root.is_dir():
        log.error("scalebook: error: %s is not a folder. Create it, or use another folder.", workspace.root)
        return 2
    os.umask(OWNER_ONLY)
    try:
        with refusals_told():
            return _address(workspace) if options.address else _own(workspace, options)
    except ConfigError as error:
        log.error("scalebook: error: %s", error)
        return 2
    except ServerDied as error:
        log.error("scalebook: error: %s", error)
        return 1


def _own(workspace: Workspace, options: argparse.Namespace) -> int:
    """Serve the workspace, unless another process does."""
    trust.resolve_trust(workspace, options.trust)
    require_room(workspace.create().hidden)
    with only_one(workspace) as is_owner:
        if not is_owner:
            return _already_served(workspace)
        access = Access.from_options(options, workspace)
        for name in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(name, _end)
        try:
            _clear_up(workspace)
            with supervisor_handle.hold_supervisor(workspace):
                return _serve(workspace, access, options.port, options.mlflow_port)
        except Interrupted:
            return 0


def _address(workspace: Workspace) -> int:
    """Print the address that opens the app; 1 if no process serves the folder."""
    addresses = Addresses.read(workspace)
    if addresses is not None and any(child.alive() for child in addresses.children):
        log.info("%s", Access.of(workspace, with_token=addresses.needs_token).opening(addresses.app))
        return 0
    log.error("scalebook: error: %s is not being served. Start it with `scalebook ui FOLDER`.", workspace.root)
    return 1


def parser() -> CommandParser:
    """The parser of `scalebook ui`."""
    parser = CommandParser(
        "scalebook ui",
        about="Open a folder of notebooks in the browser.\n\n"
        "The command starts the app, MLflow and the folder's supervisor, and prints their addresses. Ctrl+C stops "
        "the app and MLflow. Active runs continue.",
        example="ui notebooks",
        page="tutorial/first-run.md",
    )
    parser.add_argument(
        "folder", nargs="?", type=Path, help="the workspace (default: the workspace that contains the current folder)"
    )
    parser.add_argument("--port", type=int, default=8501, help="port of the app (default: 8501, or the next free one)")
    parser.add_argument(
        "--mlflow-port", type=int, default=5000, help="port of MLflow (default: 5000, or the next free one)"
    )
    parser.add_argument("--address", action="store_true", help="print the address of the running app and exit")
    parser.add_argument(trust.OPTION, action="store_true", help=trust.HELP)
    add_options(parser)
    return parser


def _end(_signal: int, _frame: FrameType | None) -> None:
    raise Interrupted


def _already_served(workspace: Workspace, deadline_s: float = 60.0) -> int:
    """Print the addresses of the process that serves the workspace; wait for them, since it may just be starting."""
    deadline = time.monotonic() + deadline_s
    while time.monotonic() < deadline:
        if addresses := Addresses.read(workspace):
            log.info("Scalebook already serves this folder:")
            _print(addresses, workspace)
            return 0
        time.sleep(0.2)
    log.error(
        "scalebook: error: another `scalebook ui` holds %s but has not finished starting. Stop that process first.",
        workspace.root,
    )
    return 1


def _clear_up(workspace: Workspace) -> None:
    """End the servers that a killed owner has left behind."""
    if left := Addresses.read(workspace):
        for process in left.children:
            end_leftover(process, [workspace.hidden / name for name in (PAGES_LOG, MLFLOW_LOG)])
        Addresses.forget(workspace)


def _serve(workspace: Workspace, access: Access, port: int, mlflow_port: int) -> int:
    require_known(workspace.tracking_uri())
    pages, mlflow = page_server(workspace, access, port), mlflow_server(workspace, access, mlflow_port)
    children = [child for child in (mlflow, pages) if child is not None]
    try:
        log.info("Starting Scalebook on %s ...", workspace.root)
        _warm_catalogue(workspace)
        if mlflow is not None and not workspace.database.exists():
            _make_store(workspace)
        for child in children:
            child.start(taken=frozenset(child.port for child in children))
        supervisor_handle.ensure(workspace)
        for child in children:
            child.wait_until_up()
        _print(_publish(workspace, access, pages, mlflow), workspace)
        try:
            configured_executor(workspace)
        except ConfigError as error:
            log.warning("No run can start: %s", error)
        log.info("Ctrl+C stops the app. Active runs continue.")
        _watch(workspace, access, pages, mlflow)
    finally:
        for signal_name in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(signal_name, signal.SIG_IGN)  # a second Ctrl+C must not leave a server behind
        for child in reversed(children):
            child.terminate()
        Addresses.forget(workspace)
        log.info("\nEnded. %s", _going_on(workspace))
    return 0


def _warm_catalogue(workspace: Workspace) -> None:
    """Describe models and strategies while the servers start, so that the first form opens at once."""

    def describe() -> None:
        try:
            catalogue.describe(workspace)
        except (OSError, ValueError, RuntimeError, subprocess.SubprocessError) as error:
            log.warning("Could not describe models and strategies yet: %s", error)

    threading.Thread(target=describe, daemon=True, name="describe").start()


def _make_store(workspace: Workspace) -> None:
    """Create MLflow's tables, before several processes try to at once."""
    made = subprocess.run(
        safe_path.python("-c", MAKE_STORE, str(workspace.root.resolve())),
        cwd=safe_path.HOME,
        env=safe_path.environment(),
        check=False,
        capture_output=True,
        text=True,
        timeout=STORE_DEADLINE_S,
        start_new_session=True,
    )
    if made.returncode != 0:
        raise ServerDied(f"MLflow's database could not be created in {workspace.database}:\n{made.stderr[-2000:]}")


def _publish(workspace: Workspace, access: Access, pages: Child, mlflow: Child | None) -> Addresses:
    ids = [child.id for child in (pages, mlflow) if child is not None]
    addresses = Addresses(
        pages.address,
        mlflow.address if mlflow else remote_address(),
        [id for id in ids if id is not None],
        needs_token=access.token is not None,
    )
    addresses.write(workspace)
    return addresses


def _print(addresses: Addresses, workspace: Workspace) -> None:
    access = Access.of(workspace, with_token=addresses.needs_token)
    mlflow = addresses.mlflow
    if mlflow is not None and mlflow != remote_address():
        mlflow = access.opening(mlflow)
    log.info("  Scalebook  %s", access.opening(addresses.app))
    log.info("  MLflow     %s", links.experiments(mlflow) if mlflow else f"no server ({workspace.tracking_uri()})")
    log.info("  Notebooks  %s", workspace.root)


def _watch(workspace: Workspace, access: Access, pages: Child, mlflow: Child | None) -> None:
    """Until a signal, restart a server that dies, on its old port; raises ServerDied after RESTARTS restarts."""
    keeper = supervisor_handle.SupervisorKeeper(workspace)
    while True:
        time.sleep(0.5)
        _keep_supervised(keeper)
        if Addresses.read(workspace) is None:  # something else lies there
            _publish(workspace, access, pages, mlflow)
        for child in (pages, mlflow):
            if child is None or child.running:
                continue
            recent = [start for start in child.starts if time.monotonic() - start < RESTART_WINDOW_S]
            if len(recent) > RESTARTS:
                raise ServerDied(f"{child.name} ended {len(recent)} times. Its log: {child.log}")
            log.warning("%s ended unexpectedly. Restarting it. Its log: %s", child.name, child.log)
            child.terminate()  # what is left of its session
            child.start(child.port)
            child.wait_until_up()
            _publish(workspace, access, pages, mlflow)
            log.info("%s is back: %s", child.name, child.address)


def _keep_supervised(keeper: supervisor_handle.SupervisorKeeper) -> None:
    before = keeper.problem
    if keeper.has_changed():
        log.warning("The supervisor ended unexpectedly. A new supervisor continues the queue.")
    elif keeper.problem and not before:
        log.warning("The supervisor has ended and cannot be restarted: %s", keeper.problem)
    if news := keeper.news():
        log.warning("%s.", news[0].upper() + news[1:])


def _going_on(workspace: Workspace) -> str:
    from scalebook.training.jobs import job_requests

    running = sum(job.state() in ("running", "waiting", "stopping") for job in job_requests.all_jobs(workspace))
    if not running:
        return "No run is active."
    runs = "1 run continues" if running == 1 else f"{running} runs continue"
    return f"{runs}. To see them, use `scalebook jobs list`, or start `scalebook ui` again."


if __name__ == "__main__":
    sys.exit(main())
