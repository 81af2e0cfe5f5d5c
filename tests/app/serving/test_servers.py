"""The two servers as `scalebook ui` starts them: what strangers get of them, and what a browser is told."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from scalebook.app.serving.access import Access
from scalebook.app.serving.child import Child
from scalebook.app.serving.mlflow_server import mlflow_server
from scalebook.app.serving.page_server import page_server
from scalebook.training.base.workspace import Workspace
from scalebook.training.tracking.run_start import open_store
from tests.app.serving.asking import ACCEPTED, STREAM, Answer, ask, handshake, new_session, opened
from tests.ports import kernels_choice
from tests.shared_files import Prepared

pytestmark = pytest.mark.long

PROXY = "lab.example.org"
SEARCH = "/api/2.0/mlflow/experiments/search"
GRAPHQL = '{"query": "query { mlflowSearchRuns(input: {experimentIds: [\\"0\\"]}) { runs { info { runId } } } }"}'


@dataclass
class Servers:
    workspace: Workspace
    access: Access
    pages: Child
    mlflow: Child

    @property
    def cookie(self) -> str:
        return f"{self.access.cookie}={self.access.token}"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory, prepared: Prepared) -> Iterator[Servers]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        workspace = Workspace(tmp_path_factory.mktemp("served")).create()
        prepared.describe(workspace)
        (workspace.root / "notes.md").write_text("# Notes\n", encoding="utf-8")
        access = Access.of(workspace, (PROXY,))
        mlflow = mlflow_server(workspace, access, kernels_choice())
        pages = page_server(workspace, access, kernels_choice())
        assert mlflow is not None
        try:
            mlflow.start()
            mlflow.wait_until_up()  # it makes the store, which the pages look at
            pages.start()
            pages.wait_until_up()
            yield Servers(workspace, access, pages, mlflow)
        finally:
            mlflow.terminate()
            pages.terminate()


def test_the_store_is_the_workspaces_and_only_its_own_eyes_may_see_it(servers: Servers) -> None:
    answer = ask(servers.mlflow.port, f"{SEARCH}?max_results=5", cookie=servers.cookie)
    assert answer.status == 200
    assert '"name": "Default"' in answer.body
    for path in servers.workspace.hidden.glob("mlflow.db*"):
        assert path.stat().st_mode & 0o077 == 0, path


@pytest.mark.parametrize(
    "path", ["/", "/version", SEARCH + "?max_results=5", "/get-artifact", "/ajax-api/3.0/mlflow/x"]
)
def test_mlflow_shows_nothing_without_the_token(servers: Servers, path: str) -> None:
    for cookie in ("", f"{servers.access.cookie}=wrong"):
        answer = ask(servers.mlflow.port, path, cookie=cookie)
        assert (answer.status, "--address" in answer.body) == (403, True)


@pytest.mark.parametrize(
    "path", ["/", "/runs", "/static/", "/_stcore/host-config", "/_stcore/metrics", "/_stcore/upload_file", "/media/x"]
)
def test_the_pages_show_nothing_without_the_token(servers: Servers, path: str) -> None:
    for cookie in ("", f"{servers.access.cookie}=wrong"):
        answer = ask(servers.pages.port, path, cookie=cookie)
        assert (answer.status, "--address" in answer.body) == (403, True)


def test_a_name_that_was_made_to_lead_here_is_refused(servers: Servers) -> None:
    """DNS rebinding: the browser believes that the page and the server are one."""
    for port in (servers.pages.port, servers.mlflow.port):
        evil = f"evil.example:{port}"
        assert ask(port, host=evil, cookie=servers.cookie).status == 403
        assert ask(port, host=evil, cookie=servers.cookie, origin=f"http://{evil}").status == 403
    evil = f"evil.example:{servers.pages.port}"
    for cookie in ("", servers.cookie):
        assert handshake(servers.pages.port, STREAM, host=evil, origin=f"http://{evil}", cookie=cookie).status == 403


def stream(servers: Servers, **headers: str) -> Answer:
    return handshake(servers.pages.port, STREAM, sec_websocket_protocol="streamlit", **headers)


def test_the_pages_talk_to_our_own_origin_with_the_token_alone(servers: Servers) -> None:
    own = f"http://127.0.0.1:{servers.pages.port}"
    assert stream(servers, origin=own, cookie=servers.cookie).status == ACCEPTED
    assert stream(servers, origin=own).status == 403
    assert stream(servers, origin=own, cookie=f"{servers.access.cookie}=wrong").status == 403
    for proxied in ({}, {"host": PROXY}):  # some proxies hand their own name on, some do not
        assert stream(servers, origin=f"https://{PROXY}", cookie=servers.cookie, **proxied).status == ACCEPTED
    others = ["http://evil.example", "null", "http://localhost:3000", f"http://127.0.0.1:{servers.mlflow.port}"]
    for origin in others:
        assert stream(servers, origin=origin, cookie=servers.cookie).status == 403


@pytest.mark.parametrize(("path", "body"), [(SEARCH, '{"max_results": 5}'), ("/graphql", GRAPHQL)])
def test_mlflow_is_told_what_to_do_by_our_own_origin_with_the_token_alone(
    servers: Servers, path: str, body: str
) -> None:
    def post(**headers: str) -> int:
        return ask(servers.mlflow.port, path, "POST", body, content_type="application/json", **headers).status

    own = f"http://127.0.0.1:{servers.mlflow.port}"
    assert post(origin=own, cookie=servers.cookie) == 200
    assert post(authorization=f"Bearer {servers.access.token}") == 200  # as MLflow's client sends it
    assert post(origin=own) == 403
    for origin in ("http://evil.example", "null", "http://localhost:3000", f"http://127.0.0.1:{servers.pages.port}"):
        assert post(origin=origin, cookie=servers.cookie) == 403


def test_nobody_may_frame_either(servers: Servers) -> None:
    for child, path in ((servers.pages, "/"), (servers.mlflow, "/")):
        answer = ask(child.port, path, cookie=servers.cookie)
        assert answer.status == 200
        assert "frame-ancestors 'self'" in answer.headers["content-security-policy"]
        assert answer.headers["x-frame-options"] == "SAMEORIGIN"


def test_other_users_see_no_token_among_the_processes_and_torch_is_in_none(servers: Servers) -> None:
    for child in (servers.pages, servers.mlflow):
        assert child.process is not None
        about = Path("/proc") / str(child.process.pid)
        assert str(servers.access.token).encode() not in (about / "cmdline").read_bytes()
        assert "libtorch" not in (about / "maps").read_text()


def test_the_pages_have_our_theme_and_tell_nobody(servers: Servers) -> None:
    told = new_session(opened(servers.pages.port, servers.cookie))
    assert told.config.gather_usage_stats is False
    assert told.custom_theme.light.primary_color == "#0b6e75"
    assert told.custom_theme.dark.background_color == "#14181b"
    assert told.custom_theme.base_font_size == 15


def test_with_a_server_of_the_persons_own_there_is_none_of_ours(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "MLFLOW_TRACKING_URI", "http://127.0.0.1:5999")
    assert mlflow_server(servers.workspace, servers.access) is None


def test_of_files_outside_of_the_folder_none_is_given_out(
    servers: Servers, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """By a link in the place of a run's files, or of one of them, or where the store says so."""
    outside = tmp_path_factory.mktemp("outside")
    (outside / "key").write_text("of nobody else", encoding="utf-8")
    client, artifacts = open_store(servers.workspace), servers.workspace.artifacts
    whole = client.create_experiment("whole", artifact_location=artifacts.resolve().as_uri())
    elsewhere = client.create_experiment("elsewhere", artifact_location=outside.as_uri())
    linked, one, named = (client.create_run(experiment).info for experiment in (whole, whole, elsewhere))
    (artifacts / linked.run_id).mkdir()
    (artifacts / linked.run_id / "artifacts").symlink_to(outside)
    (artifacts / one.run_id / "artifacts").mkdir(parents=True)
    (artifacts / one.run_id / "artifacts" / "own").write_text("own", encoding="utf-8")
    (artifacts / one.run_id / "artifacts" / "key").symlink_to(outside / "key")
    (outside / named.run_id / "artifacts").mkdir(parents=True)
    (outside / named.run_id / "artifacts" / "key").write_text("of nobody else", encoding="utf-8")

    def got(run: str, name: str) -> str:
        path = f"/get-artifact?path={name}&run_uuid={run}"
        answer = ask(servers.mlflow.port, path, cookie=servers.cookie)
        return answer.body if answer.status == 200 else f"refused {answer.status}"

    assert got(one.run_id, "own") == "own"
    for info in (linked, one, named):
        assert got(info.run_id, "key").startswith("refused"), info
        path = f"/api/2.0/mlflow/artifacts/list?run_id={info.run_id}"
        listed = ask(servers.mlflow.port, path, cookie=servers.cookie)
        assert info is one or (listed.status, "key" in listed.body) == (403, False), listed.body
