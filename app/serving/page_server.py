"""The Streamlit server, with the slow imports done before the first visit.

`python -m scalebook.app.serving.page_server PORT`.
"""

import argparse
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from scalebook.app.serving.access import Access, add_options
from scalebook.app.serving.child import Child
from scalebook.app.serving.guard import Guard
from scalebook.app.serving.page_settings import page_settings
from scalebook.app.serving.ports import LOOPBACK
from scalebook.training.safe_path import HOME, environment, python
from scalebook.training.trust import trusted
from scalebook.training.workspace import OWNER_ONLY, Workspace

PORT = 8501
HEALTH = "/_stcore/health"


def page_server(workspace: Workspace, access: Access, port: int = PORT) -> Child:
    """The server, not yet started."""

    def command(port: int) -> Sequence[str]:
        return python("-m", "scalebook.app.serving.page_server", str(port), *access.arguments())

    return Child(
        name="Scalebook",
        command=command,
        health=HEALTH,
        preferred_port=port,
        log=workspace.hidden / "ui.log",
        env=environment(SCALEBOOK_WORKSPACE=str(workspace.root), MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR="false"),
        cwd=HOME,
    )


def warm_up() -> None:
    """Import what the pages need and open the store once: 3 s that the first visitor need not wait for."""
    import plotly.graph_objects  # noqa: F401

    from scalebook.training.tracking.reading import RunReader

    RunReader(Workspace.find().tracking_uri()).runs(limit=1)


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m scalebook.app.serving.page_server")
    parser.add_argument("port", type=int)
    add_options(parser)
    options = parser.parse_args(argv)
    os.umask(OWNER_ONLY)
    workspace = Workspace.find()
    access = Access.told(options, workspace)

    from starlette.middleware import Middleware
    from streamlit import App

    threading.Thread(target=warm_up, daemon=True, name="warm-up").start()
    script = str(Path(__file__).resolve().parents[1] / "main.py")
    sys.argv = [script]  # Streamlit takes it for what was started
    guard = Middleware(Guard, access=access, port=options.port, health=HEALTH, reserved=lambda: not trusted(workspace))
    App(script, middleware=[guard]).run(config=page_settings(LOOPBACK, options.port, access.hosts))


if __name__ == "__main__":
    main()
