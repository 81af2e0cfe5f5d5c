"""MLflow's own server over the workspace's store, behind our guard.

`python -m scalebook.app.serving.mlflow_server PORT`.

One process and 0.25 GB, where `mlflow server` takes fifteen and 2.5 GB, or two and 0.5 GB with one worker.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, quote, unquote

from scalebook.app.navigation import NOTEBOOK, RUNS, SEARCH
from scalebook.app.serving.access import Access, as_server
from scalebook.app.serving.addresses import Addresses, by_same_name
from scalebook.app.serving.child import LOOPBACK, Child, end_with_owner
from scalebook.app.serving.gateway import Guard
from scalebook.training.base import Workspace, safe_path, trust
from scalebook.training.tracking import RunReader, RunRecord, adopt_artifacts, names, notes

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

PORT = 5000
MLFLOW_LOG = "mlflow.log"
MODULE = "scalebook.app.serving.mlflow_server"
HEALTH = "/health"
ARTIFACTS = "mlflow-artifacts:/"
"""Default root of artifacts: the server stores them in the workspace."""


def mlflow_server(workspace: Workspace, access: Access, port: int = PORT) -> Child | None:
    """The server, not yet started; None if `MLFLOW_TRACKING_URI` names another store, which has its own server."""
    if os.environ.get("MLFLOW_TRACKING_URI"):
        return None

    def command(port: int) -> Sequence[str]:
        return safe_path.python("-m", MODULE, str(port), *access.arguments())

    return Child(
        name="MLflow",
        command=command,
        health=HEALTH,
        preferred_port=port,
        log=workspace.hidden / MLFLOW_LOG,
        env=safe_path.environment(
            SCALEBOOK_WORKSPACE=str(workspace.root),
            MLFLOW_SERVER_ENABLE_JOB_EXECUTION="false",
            MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE="true",  # it knows neither our names nor our token
        ),
        cwd=safe_path.HOME,
    )


def remote_address() -> str | None:
    """The address of the server in `MLFLOW_TRACKING_URI`, None if it names no server."""
    address = os.environ.get("MLFLOW_TRACKING_URI", "")
    return address.rstrip("/") if address.startswith(("http://", "https://")) else None


def stay_within(workspace: Workspace) -> None:
    """Make MLflow, in this process, refuse artifacts outside the workspace, unless the workspace is trusted.

    A store may come from somebody else, and name another folder of this user, or a link to one, as a run's artifacts.
    MLflow itself refuses links below the folder of a run. Imports MLflow.
    """
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import PERMISSION_DENIED
    from mlflow.store.artifact.artifact_repository_registry import get_registered_artifact_repositories
    from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository

    def repository(artifact_uri: str, *arguments: Any, **more: Any) -> LocalArtifactRepository:
        local = LocalArtifactRepository(artifact_uri, *arguments, **more)
        if not trust.within(workspace, Path(local.artifact_dir)):
            words = (
                "The files of this run are outside the notebook folder, or are reached through a link that leads "
                "out of it"
            )
            raise MlflowException(f"{words}, so they are not shown.", error_code=PERMISSION_DENIED)
        return local

    repositories: dict[str, Any] = get_registered_artifact_repositories()
    repositories |= {"": repository, "file": repository}


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM. Imports MLflow (4 s)."""
    end_with_owner()
    workspace, access, port = as_server(MODULE, argv)

    with safe_path.importing():
        import uvicorn
        from mlflow.server import constants, handlers

    os.environ[constants.BACKEND_STORE_URI_ENV_VAR] = workspace.tracking_uri()
    os.environ[constants.ARTIFACT_ROOT_ENV_VAR] = ARTIFACTS
    os.environ[constants.SERVE_ARTIFACTS_ENV_VAR] = "true"
    os.environ[constants.ARTIFACTS_DESTINATION_ENV_VAR] = workspace.artifacts.resolve().as_uri()
    with safe_path.importing():
        from mlflow.server.fastapi_app import app

    stay_within(workspace)
    adopt_artifacts(workspace.tracking_uri())
    handlers.initialize_backend_stores(workspace.tracking_uri(), workspace.tracking_uri(), ARTIFACTS)
    guarded = Guard(WayToScalebook(app, workspace), access, port, HEALTH)
    uvicorn.run(guarded, host=LOOPBACK, port=port, log_level="warning", access_log=False)


ASSISTANT: Final = "/ajax-api/3.0/mlflow/assistant"
"""Path of MLflow's assistant, which runs programs on this machine and shows runs to a language model. Its panel still
opens once in each browser, and can be closed there."""
NO_ASSISTANT: Final = "Scalebook: MLflow's assistant is disabled here.\n"
GONE: Final = "Scalebook: there is nothing at this address, or it has been deleted.\n"
NOT_SERVED: Final = "Scalebook: the pages are not being served. Start `scalebook ui` with the notebook's folder.\n"


class WayToScalebook:
    """MLflow's `app` with our paths added and without its assistant. Links in MLflow's descriptions lead to paths of
    its own server, which redirects them to the pages, so that they stay valid when the pages' address changes
    (`training/tracking/notes.py` writes them).

    Stands behind the guard, which checks the token.
    """

    def __init__(self, app: "ASGIApp", workspace: Workspace) -> None:
        self._app, self._workspace = app, workspace
        self._reader = RunReader(workspace.tracking_uri())

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        from starlette.concurrency import run_in_threadpool
        from starlette.responses import PlainTextResponse, RedirectResponse

        path = scope.get("path", "")
        if scope["type"] == "http" and path.startswith(ASSISTANT):
            await PlainTextResponse(NO_ASSISTANT, 404)(scope, receive, send)
            return
        if scope["type"] != "http" or not path.startswith(f"{notes.PREFIX}/"):
            await self._app(scope, receive, send)
            return

        raw = scope.get("raw_path") or quote(scope["path"]).encode()
        host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")
        page = await run_in_threadpool(self._page, raw.decode("latin-1"), scope["query_string"].decode("latin-1"))
        addresses = Addresses.read(self._workspace)
        if page is None:
            await PlainTextResponse(GONE, 404)(scope, receive, send)
        elif addresses is None:
            await PlainTextResponse(NOT_SERVED, 503)(scope, receive, send)
        else:
            app = by_same_name(addresses.app, f"//{host}")
            await RedirectResponse(f"{app}{page}", 303)(scope, receive, send)

    def _page(self, path: str, query: str) -> str | None:
        """The path and the parameters of the page for this link; None if it does not exist."""
        parts = [unquote(part) for part in path.removeprefix(f"{notes.PREFIX}/").split("/")]
        if len(parts) == 2 and parts[0] == "notebook":
            return NOTEBOOK.url(**NOTEBOOK.cell(parts[1], parse_qs(query).get("cell", [""])[0]))
        if parts[0] != "run" or len(parts) not in (2, 3) or parts[2:] not in ([], ["notebook"]):
            return None
        try:
            record = self._reader.run(parts[1])
        except KeyError:
            return None
        return _notebook_address(record) if parts[2:] else _run_address(record)


def _run_address(record: RunRecord) -> str:
    is_search = names.TAG_SEARCH in record.tags
    return SEARCH.url(search=record.id) if is_search else RUNS.url(run=record.id)


def _notebook_address(record: RunRecord) -> str | None:
    if record.notebook is None:
        return None
    return NOTEBOOK.url(**NOTEBOOK.cell(record.notebook.removesuffix(".md"), record.cell or ""))


if __name__ == "__main__":
    main()
