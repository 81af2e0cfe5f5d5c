"""A person's own model, data and notebook in a folder of theirs: from nothing to a file that they send to somebody."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from scalebook.training.base.trust import trusted
from scalebook.training.base.workspace import Workspace
from tests.e2e.conftest import Served, end_supervisor, serve
from tests.e2e.steps import fill
from tests.e2e.test_journey import choose, wait_until_finished

CLICKS_S = 180.0
TIMEOUT_MS = 90_000
CODE = '''"""Which side of a line a point lies on."""

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset


class Side(lightning.LightningModule):
    """One neuron.

    Args:
        lr: Step size of SGD.
    """

    def __init__(self, lr: float = 0.1) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.lr = lr
        self.neuron = torch.nn.Linear(2, 1)

    def _loss(self, batch):
        points, side = batch
        return torch.nn.functional.binary_cross_entropy_with_logits(self.neuron(points)[:, 0], side)

    def training_step(self, batch, index):
        loss = self._loss(batch)
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch, index):
        self.log("val/loss", self._loss(batch))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), self.lr)


class Points(lightning.LightningDataModule):
    """Points of the plane, and on which side of the diagonal they lie.

    Args:
        batch_size: Points in a batch of one worker.
    """

    def __init__(self, batch_size: int = 32) -> None:
        super().__init__()
        self.batch_size = batch_size

    def _loader(self, seed):
        points = torch.randn(256, 2, generator=torch.Generator().manual_seed(seed))
        return DataLoader(TensorDataset(points, (points[:, 0] > points[:, 1]).float()), self.batch_size)

    def train_dataloader(self):
        return self._loader(1)

    def val_dataloader(self):
        return self._loader(2)
'''
NOTEBOOK = """---
title: Which side
---
# Does a larger step help?
"""
FOUND = "The **larger step** was better."


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Served]:
    """`scalebook ui FOLDER` on a folder that Scalebook has never seen."""
    root = tmp_path / "my project"
    root.mkdir()
    (root / "scalebook.toml").write_text('modules = ["sides"]\n', encoding="utf-8")
    (root / "sides.py").write_text(CODE, encoding="utf-8")
    (root / "which-side.md").write_text(NOTEBOOK, encoding="utf-8")
    served = serve(Workspace(root), cwd=root)
    yield served
    served.end()
    end_supervisor(served.workspace)


@pytest.mark.thorough  # each of its steps is a part of another journey, or of the tests of a user's own modules
@pytest.mark.timeout(360)
def test_an_own_project_goes_from_nothing_to_a_file_that_opens_offline(
    browser: Browser, project: Served, tmp_path: Path
) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 1000}, reduced_motion="reduce")
    context.set_default_timeout(TIMEOUT_MS)
    page = context.new_page()
    began = time.monotonic()
    page.goto(project.access.opening(project.addresses.app))
    page.get_by_role("button", name="Trust this folder").click()
    expect(page.get_by_text("This folder wants to run its own code")).to_be_hidden(timeout=TIMEOUT_MS)
    assert trusted(project.workspace)
    page.get_by_role("button", name="New experiment").click()
    _compose(page)
    _again_with_a_larger_step(page)
    _compare(page)
    _write(page)
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as downloading:
        page.locator(".st-key-notebook-export-html button").click()
    took = time.monotonic() - began
    file = tmp_path / downloading.value.suggested_filename
    downloading.value.save_as(file)
    context.close()
    assert took < CLICKS_S
    assert file.name == "which-side.html"
    _opens_offline(browser, file)


def _compose(page: Page) -> None:
    """The first experiment, of classes that only this folder has; run to its end."""
    expect(page.get_by_role("heading", name="New experiment")).to_be_visible(timeout=TIMEOUT_MS)
    choose(page, "Model", "Side")
    choose(page, "Data", "Points")
    expect(page.get_by_text("has its own configure_optimizers")).to_be_visible()
    fill(page, "Name", "small-step")
    fill(page, "Epochs", "2")
    expect(page.locator(".st-key-beside .sb-code").first).to_contain_text("class_path: sides.Points")
    _run(page)


def _run(page: Page) -> None:
    page.locator(".st-key-compose-run button:visible").click()
    page.wait_for_url(re.compile(r"/runs\?run=[0-9a-f]{32}"))
    wait_until_finished(page)


def _again_with_a_larger_step(page: Page) -> None:
    page.get_by_role("button", name="Duplicate").click()
    expect(page.get_by_role("heading", name="New experiment")).to_be_visible(timeout=TIMEOUT_MS)
    fill(page, "Learning rate", "1")
    fill(page, "Name", "large-step")
    expect(page.locator(".st-key-beside .sb-code").first).to_contain_text("lr: 1")
    _run(page)


def _compare(page: Page) -> None:
    page.get_by_role("link", name="Which side › large-step").click()
    page.get_by_role("button", name="Add a comparison").click()
    page.locator(".st-key-comparison-save button").click()
    card = page.locator(".st-key-cell-comparison-comparison")
    expect(card.locator("table.sb").first.locator("tbody tr")).to_have_count(2)
    expect(card.locator(".js-plotly-plot .scatterlayer .trace").nth(1)).to_be_attached()


def _write(page: Page) -> None:
    page.get_by_role("button", name="Add a note").click()
    editor = page.locator("[class*='st-key-editor-']")
    editor.locator("textarea").fill(FOUND)
    editor.locator("textarea").press("Control+Enter")
    expect(editor).to_have_count(0)
    expect(page.get_by_text("The larger step was better.")).to_be_visible()
    expect(page.get_by_test_id("stApp")).to_have_attribute("data-test-script-state", "notRunning")


def _opens_offline(browser: Browser, file: Path) -> None:
    """In a browser that has no network, and asks for none."""
    context = browser.new_context(offline=True)
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    expect(page.get_by_role("heading", name="Does a larger step help?")).to_be_visible()
    expect(page.get_by_text("The larger step was better.")).to_be_visible()
    text = page.locator("body").text_content() or ""  # with what is folded
    assert "small-step" in text
    assert "large-step" in text
    assert "sides.Side" in text
    assert "val/loss" in text
    assert page.locator("svg path:visible").count() > 1, "the curves"
    assert [one for one in asked if not one.startswith(("file:", "data:", "blob:"))] == []
    context.close()
