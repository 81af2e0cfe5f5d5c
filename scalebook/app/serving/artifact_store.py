"""The files of runs, as MLflow's server gives them out: of this machine's own those of the workspace alone.

A store may be a stranger's, and say that a run's files are in a folder of this user's, or have a link there. Links
below the folder of a run are MLflow's to refuse, and it does.
"""

from pathlib import Path
from typing import Any

from scalebook.training.trust import within
from scalebook.training.workspace import Workspace


def stay_within(workspace: Workspace) -> None:
    """In this process, from now on: a folder of files outside of the workspace is refused unless that is trusted.

    Loads MLflow.
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
