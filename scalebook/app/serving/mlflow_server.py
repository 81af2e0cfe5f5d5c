"""MLflow's own server over the workspace's store, behind our guard.

`python -m scalebook.app.serving.mlflow_server PORT`.

One process and 0.25 GB, where `mlflow server` takes fifteen and 2.5 GB, or two and 0.5 GB with one worker.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scalebook.app.serving.access import Access, as_server
from scalebook.app.serving.child import Child
from scalebook.app.serving.guard import Guard
from scalebook.app.serving.ports import LOOPBACK
from scalebook.app.serving.way_back import WayBack
from scalebook.training.safe_path import HOME, environment, importing, python
from scalebook.training.trust import within
from scalebook.training.workspace import Workspace

PORT = 5000
MLFLOW_LOG = "mlflow.log"
MODULE = "scalebook.app.serving.mlflow_server"
HEALTH = "/health"
ARTIFACTS = "mlflow-artifacts:/"
"""Where runs without a place of their own keep their artifacts: in the workspace, by way of the server."""


def mlflow_server(workspace: Workspace, access: Access, port: int = PORT) -> Child | None:
    """The server, not yet started; None where `MLFLOW_TRACKING_URI` names another store, which then has its own."""
    if os.environ.get("MLFLOW_TRACKING_URI"):
        return None

    def command(port: int) -> Sequence[str]:
        return python("-m", MODULE, str(port), *access.arguments())

    return Child(
        name="MLflow",
        command=command,
        health=HEALTH,
        preferred_port=port,
        log=workspace.hidden / MLFLOW_LOG,
        env=environment(
            SCALEBOOK_WORKSPACE=str(workspace.root),
            MLFLOW_SERVER_ENABLE_JOB_EXECUTION="false",
            MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE="true",  # it knows neither our names nor our token
        ),
        cwd=HOME,
    )


def remote_address() -> str | None:
    """The address of the server that `MLFLOW_TRACKING_URI` names, None where it names none or a database."""
    address = os.environ.get("MLFLOW_TRACKING_URI", "")
    return address.rstrip("/") if address.startswith(("http://", "https://")) else None


def stay_within(workspace: Workspace) -> None:
    """In this process, from now on: a folder of files outside of the workspace is refused unless that is trusted.

    A store may be a stranger's, and say that a run's files are in a folder of this user's, or have a link there. Links
    below the folder of a run are MLflow's to refuse, and it does. Loads MLflow.
    """
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import PERMISSION_DENIED
    from mlflow.store.artifact.artifact_repository_registry import get_registered_artifact_repositories
    from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository

    def repository(artifact_uri: str, *arguments: Any, **more: Any) -> LocalArtifactRepository:
        found = LocalArtifactRepository(artifact_uri, *arguments, **more)
        if not within(workspace, Path(found.artifact_dir)):
            words = "The files of this run lie outside the folder of notebooks, or behind a link out of it"
            raise MlflowException(f"{words}, so they are not shown.", error_code=PERMISSION_DENIED)
        return found

    known: dict[str, Any] = get_registered_artifact_repositories()
    known |= {"": repository, "file": repository}


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM. MLflow is imported here (4 s)."""
    workspace, access, port = as_server(MODULE, argv)

    with importing():
        import uvicorn
        from mlflow.server import constants, handlers

    os.environ[constants.BACKEND_STORE_URI_ENV_VAR] = workspace.tracking_uri()
    os.environ[constants.ARTIFACT_ROOT_ENV_VAR] = ARTIFACTS
    os.environ[constants.SERVE_ARTIFACTS_ENV_VAR] = "true"
    os.environ[constants.ARTIFACTS_DESTINATION_ENV_VAR] = workspace.artifacts.resolve().as_uri()
    with importing():
        from mlflow.server.fastapi_app import app

    stay_within(workspace)
    handlers.initialize_backend_stores(workspace.tracking_uri(), workspace.tracking_uri(), ARTIFACTS)
    guarded = Guard(WayBack(app, workspace), access, port, HEALTH)
    uvicorn.run(guarded, host=LOOPBACK, port=port, log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
