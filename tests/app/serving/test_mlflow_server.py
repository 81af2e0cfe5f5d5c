import asyncio
from pathlib import Path
from typing import Any

import pytest

from scalebook.app.serving.addresses import Addresses
from scalebook.app.serving.mlflow_server import WayToScalebook
from scalebook.training.base.workspace import Workspace
from scalebook.training.tracking import names
from scalebook.training.tracking.run_start import create_run, experiment_id, open_store
from tests.shared_files import Prepared


async def behind(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"MLflow"})


@pytest.fixture
def workspace(tmp_path: Path, prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    made = Workspace(tmp_path)
    prepared.open(made)
    return made


def ask(workspace: Workspace, path: str, host: str = "127.0.0.1:5000") -> tuple[int, str]:
    """Status, and where it leads or what it says."""
    said: list[Any] = []

    async def send(message: Any) -> None:
        said.append(message)

    raw, _, query = path.partition("?")
    scope = {"type": "http", "method": "GET", "path": raw, "raw_path": raw.encode(), "query_string": query.encode(),
             "headers": [(b"host", host.encode())]}  # fmt: skip
    asyncio.run(WayToScalebook(behind, workspace)(scope, None, send))  # type: ignore[arg-type]
    leads = dict(said[0]["headers"]).get(b"location")
    return said[0]["status"], (leads or said[1]["body"]).decode()


def test_it_leads_to_where_the_pages_are_now(workspace: Workspace) -> None:
    client = open_store(workspace)
    home = experiment_id(client, workspace, "lab", "Größe 1.md")
    run = create_run(client, home, "a run", {names.TAG_NOTEBOOK: "Größe 1.md", names.TAG_CELL: "a'b"}, {})
    search = create_run(client, home, "a search", {names.TAG_SEARCH: "s"}, {})
    assert ask(workspace, f"/scalebook/run/{run}")[0] == 503, "nobody serves the pages"
    Addresses("http://127.0.0.1:8501", "http://127.0.0.1:5000").write(workspace)
    assert ask(workspace, f"/scalebook/run/{run}") == (303, f"http://127.0.0.1:8501/runs?run={run}")
    assert ask(workspace, f"/scalebook/run/{search}") == (303, f"http://127.0.0.1:8501/search?search={search}")
    notebook = "notebook=Gr%C3%B6%C3%9Fe+1&cell=a%27b"
    assert ask(workspace, f"/scalebook/run/{run}/notebook") == (303, f"http://127.0.0.1:8501/?{notebook}")
    client.set_tag(run, names.TAG_NOTEBOOK, "renamed.md")
    Addresses("http://127.0.0.1:9999", "http://127.0.0.1:5000").write(workspace)
    assert ask(workspace, f"/scalebook/run/{run}/notebook", "localhost:5000") == (
        303, "http://localhost:9999/?notebook=renamed&cell=a%27b",
    )  # fmt: skip
    assert ask(workspace, "/scalebook/notebook/Gr%C3%B6%2F%22?cell=x%26y") == (
        303, "http://127.0.0.1:9999/?notebook=Gr%C3%B6%2F%22&cell=x%26y",
    )  # fmt: skip


def test_all_else_is_mlflows_and_what_is_not_there_is_said(workspace: Workspace) -> None:
    Addresses("http://127.0.0.1:8501", "http://127.0.0.1:5000").write(workspace)
    assert ask(workspace, "/ajax-api/2.0/mlflow/runs/search") == (200, "MLflow")
    assert ask(workspace, "/scalebookish") == (200, "MLflow")
    assert ask(workspace, "/ajax-api/3.0/mlflow/assistant/message")[0] == 404, "it would run programs here"
    for path in ("run/0000", "run/0000/notebook", "run", "", "run/a/b/c", "//example.org", "other/x"):
        assert ask(workspace, f"/scalebook/{path}")[0] == 404, path
