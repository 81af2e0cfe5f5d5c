"""`scalebook ui` as a person starts and ends it."""

import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Page, expect

from scalebook.app.serving.addresses import Addresses
from scalebook.app.serving.child import LOOPBACK, answers
from scalebook.training.base.workspace import Workspace
from scalebook.training.jobs import supervisor_handle
from tests.e2e.conftest import END_DEADLINE_S, ROOT, Served, end_supervisor, serve
from tests.ports import kernels_choice
from tests.shared_files import Prepared

pytestmark = pytest.mark.thorough

REPLACED = "The supervisor ended unexpectedly. A new supervisor continues the queue."


@pytest.fixture
def workspace(tmp_path: Path, prepared: Prepared) -> Workspace:
    """Described, but without a store."""
    (tmp_path / "notes.md").write_text("# Notes\n", encoding="utf-8")
    made = Workspace(tmp_path).create()
    prepared.describe(made)
    return made


def test_it_finds_ports_refuses_to_start_twice_and_ends_all_it_started(workspace: Workspace) -> None:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        port = taken.getsockname()[1]
        served = serve(workspace, "--port", str(port), "--mlflow-port", str(port))
    try:
        first = served.addresses
        ports = [int(address.rsplit(":", 1)[1]) for address in (first.app, first.mlflow or "")]
        assert port not in ports
        assert len(set(ports)) == 2
        assert answers(ports[0], "/_stcore/health")
        assert answers(ports[1], "/health")
        _refuses_a_second(workspace, served)
        _tells_its_address(workspace, served)
        _replaces_its_supervisor(workspace, served)
        children = (Addresses.read(workspace) or first).children
        printed = served.end()
    finally:
        end_supervisor(workspace)
    assert f"Scalebook  {first.app}/?token={served.access.token}\n" in printed
    experiments = "#/experiments?workflowType=machine_learning"
    assert f"MLflow     {first.mlflow}/?token={served.access.token}{experiments}\n" in printed
    for path in (workspace.hidden, *workspace.hidden.rglob("*")):
        assert path.is_symlink() or path.stat().st_mode & 0o077 == 0, path
    assert "No run is active" in printed
    assert served.process.returncode == 0
    assert not any(process.alive() for process in children)
    assert Addresses.read(workspace) is None


def test_an_open_page_says_that_its_server_has_ended(page: Page, workspace: Workspace) -> None:
    """In place of Streamlit's question whether there is internet; the page knows nothing of runs, which go on."""
    served = serve(workspace)
    try:
        page.goto(served.access.opening(served.addresses.app))
        expect(page.get_by_test_id("stApp")).to_have_attribute(
            "data-test-connection-state", "CONNECTED", timeout=60_000
        )
        expect(page.get_by_role("link", name="Runs")).to_be_visible(timeout=60_000)
        served.end()
        expect(page.locator(".sb-gone")).to_contain_text("scalebook ui has ended. Runs go on.", timeout=60_000)
        expect(page.get_by_text("connected to the internet")).to_be_hidden(timeout=10_000)
    finally:
        end_supervisor(workspace)


@pytest.mark.timeout(360)
def test_it_clears_up_what_one_left_that_was_killed_and_heals(workspace: Workspace) -> None:
    left = serve(workspace)
    _is_killed_before_it_could_end(left)
    served = serve(workspace, unlike=left.addresses)
    try:
        assert not any(one.alive() for one in left.addresses.children)
        _heals(workspace, served.addresses, int(served.addresses.app.rsplit(":", 1)[1]))
        printed = served.end()
    finally:
        end_supervisor(workspace)
    assert "Scalebook ended unexpectedly. Restarting it" in printed


def _is_killed_before_it_could_end(owner: Served) -> None:
    owner.process.kill()
    owner.process.wait(timeout=10)
    assert all(process.alive() for process in owner.addresses.children)


def ui(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "scalebook.app.serve", str(folder), *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)


def _refuses_a_second(workspace: Workspace, first: Served) -> None:
    second = ui(workspace.root)
    assert second.returncode == 0
    assert "already serves this folder" in second.stdout
    assert first.access.opening(first.addresses.app) in second.stdout


def _tells_its_address(workspace: Workspace, served: Served) -> None:
    told = ui(workspace.root, "--address")
    assert (told.returncode, told.stdout) == (0, f"{served.access.opening(served.addresses.app)}\n")


def _replaces_its_supervisor(workspace: Workspace, served: Served) -> None:
    before = supervisor_handle.running(workspace)
    assert before is not None
    os.kill(before.pid, signal.SIGKILL)
    deadline = time.monotonic() + END_DEADLINE_S
    while time.monotonic() < deadline:
        now = supervisor_handle.running(workspace)
        if now is not None and now != before and REPLACED in served.printed():
            return
        time.sleep(0.05)
    raise AssertionError("nobody replaced the supervisor")


def _heals(workspace: Workspace, first: Addresses, port: int) -> None:
    """The page server is killed: it comes back at its address."""
    os.kill(first.children[0].pid, signal.SIGKILL)
    deadline = time.monotonic() + END_DEADLINE_S
    while time.monotonic() < deadline:
        now = Addresses.read(workspace)
        if now is not None and now.children[0] != first.children[0] and answers(port, "/_stcore/health"):
            assert now.app == first.app
            return
        time.sleep(0.2)
    raise AssertionError("the page server did not come back")


def test_two_that_are_started_at_the_same_moment_serve_a_folder_each(tmp_path: Path) -> None:
    """Both look for the same ports, and find them free."""
    port, mlflow_port = kernels_choice(), kernels_choice()
    served: list[Served] = []
    workspaces = [Workspace(tmp_path / name) for name in ("one", "two")]
    for workspace in workspaces:
        workspace.root.mkdir()
        workspace.create()
    try:
        with ThreadPoolExecutor(2) as both:
            options = ("--port", str(port), "--mlflow-port", str(mlflow_port))
            started = [both.submit(serve, workspace, *options) for workspace in workspaces]
            served.extend(found.result() for found in started)
        addresses = [one.addresses for one in served]
        assert len({address for one in addresses for address in (one.app, one.mlflow)}) == 4
        for one in served:
            for child, address in zip(one.addresses.children, (one.addresses.app, one.addresses.mlflow), strict=True):
                sockets = psutil.Process(child.pid).net_connections("tcp4")
                ports = {found.laddr.port for found in sockets if found.status == psutil.CONN_LISTEN}
                assert [f"http://{LOOPBACK}:{port}" for port in ports] == [address]
    finally:
        for one in served:
            one.end()
        for workspace in workspaces:
            end_supervisor(workspace)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = ui(tmp_path / "nowhere")
    assert done.returncode == 2
    assert "nowhere is not a folder" in done.stdout


def test_the_address_of_a_folder_that_nobody_serves(tmp_path: Path) -> None:
    done = ui(tmp_path, "--address")
    assert done.returncode == 1
    assert "is not being served" in done.stdout
    assert list(tmp_path.iterdir()) == []
