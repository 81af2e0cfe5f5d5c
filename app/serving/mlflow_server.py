"""MLflow's own server over the workspace's store: two processes and 0.5 GB instead of the usual fifteen and 2.5 GB."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from app.serving.child import Child
from training.workspace import Workspace

PORT = 5000


def mlflow_server(workspace: Workspace, port: int = PORT) -> Child | None:
    """The server, not yet started; None where `MLFLOW_TRACKING_URI` names another store, which then has its own."""
    if os.environ.get("MLFLOW_TRACKING_URI"):
        return None

    def command(port: int) -> Sequence[str]:
        return [
            *(sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)),
            *("--workers", "1"),  # more make every call four times slower
            *("--backend-store-uri", workspace.tracking_uri()),
            *("--artifacts-destination", str(workspace.artifacts)),
            *("--uvicorn-opts", "--log-level warning"),
        ]

    return Child(
        name="MLflow",
        command=command,
        health="/health",
        preferred_port=port,
        log=workspace.hidden / "mlflow.log",
        env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
        cwd=Path(workspace.root),
    )


def remote_address() -> str | None:
    """The address of the server that `MLFLOW_TRACKING_URI` names, None where it names none or a database."""
    told = os.environ.get("MLFLOW_TRACKING_URI", "")
    return told.rstrip("/") if told.startswith(("http://", "https://")) else None
