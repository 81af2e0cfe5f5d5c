"""From an empty folder to an exported claim or answer on a model of one's own, in the browser alone, but for the
model's file."""

import re
import time
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from scalebook.training.asking import AskFolder
from scalebook.training.base.workspace import SETTINGS, Workspace
from tests.e2e.conftest import Served, end_supervisor, serve
from tests.e2e.steps import fill
from tests.e2e.test_journey import choose, wait_until_finished

TIMEOUT_MS = 90_000
ASKED_FOR, ASKED_WORDS = "10m", "10 min"
ANSWER_MS = 700_000
MOST_CLICKS = 5
CODE = '''"""Lines through points, and which points lie above 0."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import Accuracy, R2Score

open(__file__ + ".imported", "w").close()


class Line(L.LightningModule):
    """A linear regression.

    Args:
        lr: Learning rate of SGD.
    """

    def __init__(self, lr: float = 0.05):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Linear(4, 1)
        self.r2, self.acc = R2Score(), Accuracy(task="binary")

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.mse_loss(self.net(x)[:, 0], y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        y_hat = self.net(x)[:, 0]
        self.r2(y_hat, y)
        self.acc((y_hat > 0).int(), (y > 0).int())
        self.log("val_loss", nn.functional.mse_loss(y_hat, y), prog_bar=True)
        self.log("val_r2", self.r2)
        self.log("val_acc", self.acc)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)


class Points(L.LightningDataModule):
    """Points and a noisy sum of their coordinates.

    Args:
        batch_size: Points in a batch of one worker.
    """

    def __init__(self, batch_size: int = 32):
        super().__init__()
        self.batch_size = batch_size

    def _loader(self, seed):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(512, 4, generator=generator)
        return DataLoader(TensorDataset(x, x.sum(1) + torch.randn(512, generator=generator)), self.batch_size)

    def train_dataloader(self):
        return self._loader(1)

    def val_dataloader(self):
        return self._loader(2)
'''


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Served]:
    """`scalebook ui FOLDER` on a folder with nothing in it."""
    root = tmp_path / "my lab"
    root.mkdir()
    served = serve(Workspace(root), cwd=root)
    yield served
    served.end()
    end_supervisor(served.workspace)


@pytest.mark.thorough  # each of its steps is a test of a page
@pytest.mark.timeout(360)
def test_an_empty_folder_leads_to_an_exported_claim_on_an_own_model(
    browser: Browser, empty: Served, tmp_path: Path
) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 1000}, reduced_motion="reduce")
    context.set_default_timeout(TIMEOUT_MS)
    page = context.new_page()
    page.goto(empty.access.opening(empty.addresses.app))
    expect(page.get_by_text("An experiment notebook for PyTorch Lightning models")).to_be_visible()
    own_model(page, empty.workspace.root)
    page.get_by_role("button", name="New notebook").click()
    fill(page, "Title", "My line")
    page.get_by_role("button", name="Create").click()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="New experiment").click()
    compose(page)
    claim(page, empty.workspace.root / "my-line.md")
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as downloading:
        page.locator(".st-key-notebook-export-html button").click()
    file = tmp_path / "exported.html"
    downloading.value.save_as(file)
    context.close()
    text = file.read_text(encoding="utf-8")
    assert "best val_loss: at most 2" in text
    assert "supported" in text


def own_model(page: Page, root: Path) -> None:
    (root / "line.py").write_text(CODE, encoding="utf-8")
    page.get_by_role("button", name="Use my own model").click()
    found = page.locator(".st-key-found-line")
    expect(found).to_contain_text("model: Line · data: Points")
    found.get_by_role("button", name="Use").click()
    expect(page.get_by_text("This folder wants to run its own code")).to_be_visible()
    assert (root / SETTINGS).read_text(encoding="utf-8") == 'modules = ["line"]\n'
    assert not (root / "line.py.imported").exists()
    page.get_by_role("button", name="Trust this folder").click()
    expect(page.get_by_text("This folder wants to run its own code")).to_be_hidden()


def compose(page: Page) -> None:
    """Three seeds, run to their end."""
    expect(page.get_by_role("heading", name="New experiment")).to_be_visible()
    choose(page, "Model", "Line")
    choose(page, "Data", "Points")
    fill(page, "Name", "line")
    fill(page, "Epochs", "2")
    fill(page, "Seeds", "3")
    expect(page.locator(".st-key-beside .sb-code").first).to_contain_text("class_path: line.Points")
    page.locator(".st-key-compose-run button:visible").click()
    page.wait_for_url(re.compile(r"/runs\?run=[0-9a-f]{32}"))
    wait_until_finished(page)
    for metric in ("val_loss", "val_acc", "val_r2"):
        expect(page.get_by_text(metric).first).to_be_attached()
    page.get_by_role("link", name="My line › line").click()


def claim(page: Page, file: Path) -> None:
    """By the form; its verdict follows from the three runs."""
    card = page.locator(".st-key-cell-experiment-line")
    expect(card).to_be_visible()
    expect(card.locator(".sb-finished")).to_have_count(4)  # the whole, and each seed
    page.get_by_role("button", name="Add a claim").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("At most: is empty, and At least is empty too.")).to_be_visible()
    expect(dialog.locator(".st-key-claim-form-save button")).to_be_disabled()
    choose(page, "Figure", "best value")
    metric = dialog.get_by_role("combobox", name="Metric")
    metric.fill("val_loss")
    metric.press("Enter")
    fill(page, "At most", "2")
    fill(page, "Name", "good-enough")
    dialog.locator(".st-key-claim-form-save button").click()
    shown = page.locator(".st-key-cell-claim-good-enough")
    expect(shown).to_contain_text("best val_loss: at most 2")
    expect(shown.locator(".sb-supported").first).to_be_visible()
    assert "```yaml claim=good-enough\nruns: [line]\nfigure: best\nmetric: val_loss\n" in file.read_text(
        encoding="utf-8"
    )


@pytest.fixture
def registered(tmp_path: Path) -> Iterator[Served]:
    """`scalebook ui FOLDER` on a trusted folder with a model and data of one's own, and nothing else."""
    root = tmp_path / "my lab"
    root.mkdir()
    (root / "line.py").write_text(CODE, encoding="utf-8")
    (root / SETTINGS).write_text('modules = ["line"]\n', encoding="utf-8")
    served = serve(Workspace(root), "--trust", cwd=root)
    yield served
    served.end()
    end_supervisor(served.workspace)


def wait_for_questions(workspace: Workspace, within_ms: int) -> None:
    """Wait until no process works on a question any more."""
    folders = [AskFolder(path) for path in (workspace.hidden / "asks").iterdir()]
    deadline = time.monotonic() + within_ms / 1000
    while any(folder.works() for folder in folders) and time.monotonic() < deadline:
        time.sleep(0.2)


def stop_questions(workspace: Workspace) -> None:
    """Nothing of a test may outlive it: it may still add seeds."""
    for path in (workspace.hidden / "asks").iterdir():
        AskFolder(path).stop()
    wait_for_questions(workspace, TIMEOUT_MS)


@pytest.mark.thorough  # each of its steps is a test of a page
@pytest.mark.timeout(900)
def test_an_own_model_leads_to_an_exported_answer_by_five_clicks(
    browser: Browser, registered: Served, tmp_path: Path
) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 1000}, reduced_motion="reduce")
    context.set_default_timeout(TIMEOUT_MS)
    page = context.new_page()
    page.goto(registered.access.opening(registered.addresses.app))
    clicks = 0

    def click(button: Locator) -> None:
        nonlocal clicks
        button.click()
        clicks += 1

    click(page.get_by_role("button", name="Ask a question"))
    expect(page.get_by_role("heading", name="New experiment")).to_be_visible()
    fill(page, "Epochs", "4")
    config = page.locator(".st-key-beside .sb-code").first
    for chosen in ("class_path: line.Line", "class_path: line.Points", "max_epochs: 4"):
        expect(config).to_contain_text(chosen)
    click(page.locator(".st-key-compose-save button:visible"))
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("What will be done")).to_be_visible()
    fill(page, "Budget", ASKED_FOR)
    expect(dialog.get_by_text(f"so how much fits into {ASKED_WORDS}")).to_be_visible()
    click(dialog.get_by_role("button", name="Start"))
    card = page.locator("[class*='st-key-cell-answer-']")
    expect(card.locator(".sb-running")).to_be_visible()
    expect(card.locator(".sb-supported, .sb-not-resolved").first).to_be_visible(timeout=ANSWER_MS)
    wait_for_questions(registered.workspace, ANSWER_MS)  # until then the answer changes
    expect(card.locator(".sb-running")).to_have_count(0)
    expect(card.locator(".sb-headline")).to_have_text(re.compile("^(Yes|No|Not resolved): "))
    expect(card.locator(".js-plotly-plot .errorbar").first).to_be_attached()
    expect(card.get_by_text("How the question was answered: 1 pilot run")).to_be_visible()
    headline = card.locator(".sb-headline").inner_text()
    click(page.get_by_role("button", name="Export"))
    with page.expect_download() as downloading:
        click(page.get_by_role("button", name="HTML"))
    file = tmp_path / "exported.html"
    downloading.value.save_as(file)
    context.close()
    stop_questions(registered.workspace)
    assert clicks <= MOST_CLICKS
    text = unescape(file.read_text(encoding="utf-8"))
    assert headline in text
    assert 'aria-label="Each bar is a multiple of one process: DDP × 2' in text
    logs = [log.read_text(encoding="utf-8") for log in registered.workspace.jobs.glob("*/log.txt")]
    assert logs
    assert not [log for log in logs if "a new Python process" in log], "each is forked from what is imported already"
