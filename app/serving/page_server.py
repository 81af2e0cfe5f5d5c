"""The Streamlit server: `python -m app.serving.page_server PORT`, with the slow imports done before the first visit."""

import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from app.serving.child import Child
from training.workspace import Workspace

PORT = 8501
PROJECT = Path(__file__).resolve().parents[2]
"""Streamlit takes its theme and settings from `.streamlit/config.toml` in its working directory."""


def page_server(workspace: Workspace, port: int = PORT) -> Child:
    """The server, not yet started."""

    def command(port: int) -> Sequence[str]:
        return [sys.executable, "-m", "app.serving.page_server", str(port)]

    return Child(
        name="Scalebook",
        command=command,
        health="/_stcore/health",
        preferred_port=port,
        log=workspace.hidden / "ui.log",
        env={
            **os.environ,
            "SCALEBOOK_WORKSPACE": str(workspace.root),
            "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
        },
        cwd=PROJECT,
    )


def warm_up() -> None:
    """Import what the pages need and open the store once: 3 s that the first visitor need not wait for."""
    import plotly.graph_objects  # noqa: F401

    from training.tracking.reading import RunReader

    RunReader(Workspace.find().tracking_uri()).runs(limit=1)


def main() -> None:
    from streamlit.web import cli

    threading.Thread(target=warm_up, daemon=True, name="warm-up").start()
    main_script = str(Path(__file__).resolve().parents[1] / "main.py")
    cli.main(
        [
            "run",
            main_script,
            "--server.port",
            sys.argv[1],
            "--server.address",
            "127.0.0.1",
            "--server.headless",
            "true",
        ],
        prog_name="scalebook ui",
    )


if __name__ == "__main__":
    main()
