"""The Streamlit server, with the slow imports done before the first visit.

`python -m scalebook.app.serving.page_server PORT`.
"""

import gc
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from scalebook.app.serving.access import Access, as_server
from scalebook.app.serving.child import Child
from scalebook.app.serving.guard import Guard
from scalebook.app.serving.page_settings import page_settings
from scalebook.app.serving.ports import LOOPBACK
from scalebook.app.serving.shell import Shell
from scalebook.training.safe_path import HOME, environment, importing, python
from scalebook.training.trust import trusted
from scalebook.training.workspace import Workspace

PORT = 8501
PAGES_LOG = "ui.log"
MODULE = "scalebook.app.serving.page_server"
HEALTH = "/_stcore/health"


def page_server(workspace: Workspace, access: Access, port: int = PORT) -> Child:
    """The server, not yet started."""

    def command(port: int) -> Sequence[str]:
        return python("-m", MODULE, str(port), *access.arguments())

    return Child(
        name="Scalebook",
        command=command,
        health=HEALTH,
        preferred_port=port,
        log=workspace.hidden / PAGES_LOG,
        env=environment(SCALEBOOK_WORKSPACE=str(workspace.root), MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR="false"),
        cwd=HOME,
    )


def warm_up() -> None:
    """Import what the pages need and open the store once: 3 s that the first visitor need not wait for.

    After each run of a page Streamlit looks for garbage among all objects: 0.15 s in which no page goes on, unless
    those of modules are frozen.
    """
    with importing():
        import plotly.graph_objects  # noqa: F401

        from scalebook.training.tracking.reading import RunReader

    try:
        RunReader(Workspace.find().tracking_uri()).runs(limit=1)
    finally:  # also where the store does not answer
        gc.freeze()


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM."""
    workspace, access, port = as_server(MODULE, argv)

    with importing():
        from starlette.middleware import Middleware
        from streamlit import App

        from scalebook.app.serving.left_pages import leave_out

    leave_out()
    threading.Thread(target=warm_up, daemon=True, name="warm-up").start()
    script = str(Path(__file__).resolve().parents[1] / "main.py")
    sys.argv = [script]  # Streamlit takes it for what was started
    guard = Middleware(Guard, access=access, port=port, health=HEALTH, reserved=lambda: not trusted(workspace))
    App(script, middleware=[guard, Middleware(Shell)]).run(config=page_settings(LOOPBACK, port, access.hosts))


if __name__ == "__main__":
    main()
