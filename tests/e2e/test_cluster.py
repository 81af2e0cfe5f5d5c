"""An experiment run from its notebook on another machine of a Ray cluster: seen there, followed, and brought back."""

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from scalebook.training.base.trust import trust
from scalebook.training.base.workspace import SETTINGS, Workspace
from scalebook.training.jobs.job_requests import all_jobs
from tests.e2e.conftest import Served, end_supervisor, serve
from tests.e2e.test_journey import wait_until_finished
from tests.shared_files import Prepared
from tests.training.cluster.conftest import NO_RAY, Place
from tests.training.cluster.test_ray_executor import leave

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(420),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason=NO_RAY),
]
STARTS_MS = 180_000
NOTEBOOK = """---
title: Elsewhere
---
# Two workers, which this machine has no two cores for

```yaml experiment=tiny
config:
  seed_everything: 1
  trainer: {strategy: ddp, devices: 2, max_epochs: 20}
  model: {class_path: MLPClassifier}
  data: {class_path: Digits, init_args: {batch_size: 16}}
  optimizer: {class_path: SGD, init_args: {lr: 0.1}}
```
"""


@pytest.fixture
def far(tmp_path: Path, prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """The app on machine `here`, which lends one core; `elsewhere` lends two."""
    here, elsewhere = Place(tmp_path / "here"), Place(tmp_path / "elsewhere")
    workspace = prepared.into(Workspace(tmp_path / "notebooks"))
    monkeypatch.setenv("XDG_STATE_HOME", str(here.home))
    try:
        here.command("start", "--host", "127.0.0.6", "--port", "0", "--name", "here", "--cores", "1")
        words = ("start", "--join", here.node().address, "--host", "127.0.0.7", "--token", str(here.token))
        elsewhere.command(*words, "--name", "elsewhere", "--cores", "2")
        (workspace.root / "elsewhere.md").write_text(NOTEBOOK, encoding="utf-8")
        (workspace.root / SETTINGS).write_text('[cluster]\naddress = "auto"\nfiles = "copied"\n', encoding="utf-8")
        trust(workspace)
        served = serve(workspace)
        try:
            yield served
        finally:
            served.end()
            end_supervisor(workspace)
            leave(workspace)
    finally:
        for place in (elsewhere, here):
            if (place.home / "scalebook" / "cluster" / "node.json").exists():
                place.command("stop")


@pytest.fixture
def page(browser: Browser, far: Served) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 1600}, reduced_motion="reduce")
    far.let_in(context)
    yield context.new_page()
    context.close()


def test_an_experiment_runs_elsewhere_and_all_of_it_comes_back(page: Page, far: Served) -> None:
    page.goto(far.addresses.app)
    card = page.locator(".st-key-cell-experiment-tiny")
    card.locator("[class*=st-key-run-tiny] button").click(timeout=90_000)
    expect(card.locator(".sb-chip").first).to_have_text("running", timeout=STARTS_MS)
    page.goto(f"{far.addresses.app}/runs")
    page.get_by_text("Devices", exact=True).click(timeout=30_000)
    row = page.locator(".st-key-devices tr", has_text="elsewhere").filter(has_text="tiny")
    expect(row).to_contain_text("0, 1", timeout=30_000)
    (job,) = all_jobs(far.workspace)
    page.goto(f"{far.addresses.app}/runs?run={job.id}")
    wait_until_finished(page)
    expect(page.locator(".js-plotly-plot .scatterlayer .trace").first).to_be_attached(timeout=30_000)
    page.get_by_role("tab", name="Log").click()
    expect(page.get_by_text(re.compile("max_epochs=20` reached")).first).to_be_visible(timeout=30_000)
    started, result = job.started(), job.result()
    assert started is not None
    assert result is not None
    assert (started.machine, started.cores, result.status) == ("elsewhere", [0, 1], "finished")
