"""Real servers on a fresh workspace, and a real Chromium in front of them."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from scalebook.app.serving.access import Access
from scalebook.app.serving.addresses import Addresses
from scalebook.training.base.workspace import Workspace
from scalebook.training.jobs import supervisor_handle
from tests.ports import kernels_choice
from tests.shared_files import Prepared
from tests.training.base.poison import poison, ran

CHROMIUMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""Looked for in this order: the first is all that tests need of the second, without windows and what is around them."""
ROOT = Path(__file__).resolve().parents[2]
START_DEADLINE_S = 120.0
END_DEADLINE_S = 30.0
NOTEBOOK = """---
title: First steps
---
# First steps

Press **New experiment**.
"""
REBOUND = "rebound.example"
"""A name that somebody made lead to this machine."""
ARGUMENTS = [
    "--no-sandbox",  # containers give it none
    "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1",
]  # fmt: skip
BASE_URL_FIXTURE = "ignore:Session-scoped fixtures defined as instance methods:pytest.PytestRemovedIn10Warning"
"""Of pytest-base-url's own fixture under pytest 9."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.timeout(180))
            item.add_marker(pytest.mark.filterwarnings(BASE_URL_FIXTURE))


@dataclass
class Served:
    """`scalebook ui` at work on a workspace of its own."""

    process: subprocess.Popen[bytes]
    workspace: Workspace
    addresses: Addresses
    output: Path
    """Where it prints to."""

    def now(self) -> Addresses:
        """The addresses as they stand; the processes change when a server is started again."""
        return Addresses.read(self.workspace) or self.addresses

    @property
    def access(self) -> Access:
        return Access.of(self.workspace, with_token=self.addresses.needs_token)

    def let_in(self, context: BrowserContext) -> None:
        """Make this browser known, as opening the printed address once does."""
        access = self.access
        if access.token is not None:
            context.add_cookies([{"name": access.cookie, "value": access.token, "url": self.addresses.app}])

    def printed(self) -> str:
        """All that it has printed so far."""
        return self.output.read_text(encoding="utf-8")

    def end(self) -> str:
        """Ask it to end; returns what it printed."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=END_DEADLINE_S)
        return self.printed()


UI = (sys.executable, "-P", "-m", "scalebook.app.serve")


def serve(
    workspace: Workspace,
    *options: str,
    unlike: Addresses | None = None,
    command: Sequence[str] = UI,
    cwd: Path = ROOT,
) -> Served:
    """Start it and wait for its addresses, not those `unlike` that an earlier one left."""
    environment = {key: value for key, value in os.environ.items() if key not in ("MLFLOW_TRACKING_URI",)}
    if "--port" not in options:
        options = (*options, "--port", str(kernels_choice()), "--mlflow-port", str(kernels_choice()))
    output = workspace.root.with_name(f"{workspace.root.name}-printed.txt")
    with output.open("wb") as file:
        process = subprocess.Popen(
            [*command, str(workspace.root), *options],
            cwd=cwd,
            env=environment,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < deadline and process.poll() is None:
        found = Addresses.read(workspace)
        if found is not None and found != unlike:
            return Served(process, workspace, found, output)
        time.sleep(0.2)
    process.kill()
    raise AssertionError(f"scalebook ui did not come up:\n{output.read_text(encoding='utf-8')}")


def end_supervisor(workspace: Workspace) -> None:
    """Nothing of a test may outlive it: the supervisor with all its runs."""
    if found := supervisor_handle.running(workspace):
        main = psutil.Process(found.pid)
        family = [main, *main.children(recursive=True)]
        for one in family:
            one.kill()
        psutil.wait_procs(family, timeout=10)


@pytest.fixture(scope="session", autouse=True)
def _patience() -> None:
    """What a page shows next may take as long as the machine is busy with other tests."""
    expect.set_options(timeout=20_000)


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory, prepared: Prepared) -> Iterator[Served]:
    """One app for all journeys: it takes 10 s to start."""
    workspace = prepared.into(Workspace(tmp_path_factory.mktemp("workspace")))
    (workspace.root / "first-steps.md").write_text(NOTEBOOK, encoding="utf-8")
    poison(workspace.root)
    found = serve(workspace, cwd=workspace.root)
    yield found
    found.end()
    end_supervisor(workspace)
    assert ran(workspace.root) == []


@pytest.fixture(scope="session")
def known(browser: Browser, browser_context_args: dict[str, Any], served: Served) -> Iterator[BrowserContext]:
    """A browser that has opened the address. One for all journeys: each new one would load and compile the libraries
    anew."""
    made = browser.new_context(**browser_context_args)
    served.let_in(made)
    yield made
    made.close()


@pytest.fixture
def page(known: BrowserContext) -> Iterator[Page]:
    """A new tab of that browser."""
    made = known.new_page()
    yield made
    made.close()


def chromium() -> str:
    """The system's, which needs no download."""
    found = next((path for name in CHROMIUMS if (path := shutil.which(name))), None)
    assert found is not None, "no Chromium: run tests/debian.sh chromium"
    return found


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    return {**browser_type_launch_args, "executable_path": chromium(), "args": ARGUMENTS}


@pytest.fixture(scope="session")
def browser_context_args(browser_context_args: dict[str, Any]) -> dict[str, Any]:
    return {**browser_context_args, "viewport": {"width": 1280, "height": 1000}, "reduced_motion": "reduce"}
