"""The question whether a folder is to be trusted."""

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from scalebook.app.shared import drafts
from scalebook.app.shared.drafts import SavedDraft
from scalebook.app.shared.frame import TrustQuestion
from scalebook.training.base.trust import trusted
from scalebook.training.base.workspace import Workspace
from scalebook.training.jobs import supervisor_handle
from tests.app.pages.compose_form import choice, config, pick
from tests.app.pages.conftest import Open, codes, has_number, number, words

MINE = """
import torch
from lightning import LightningDataModule, LightningModule


class Mine(LightningModule):
    def __init__(self, width: int = 3) -> None:
        super().__init__()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Numbers(LightningDataModule):
    def __init__(self, rows: int = 10, batch_size: int = 2) -> None:
        super().__init__()
"""
OWN = """# Own classes

```yaml experiment=small
config:
  seed_everything: 1
  trainer: {strategy: auto, devices: 1, max_epochs: 2}
  model: {class_path: mine.Mine, init_args: {width: 7}}
  data: {class_path: mine.Numbers, init_args: {rows: 20, batch_size: 4}}
```
"""
QUESTION = "This folder wants to run its own code"


def listed(app: AppTest) -> str:
    return "\n".join(codes(app))


def test_a_folder_with_nothing_of_its_own_asks_nothing(open_page: Open) -> None:
    assert QUESTION not in words(open_page())


@pytest.mark.usefixtures("forked_descriptions")
def test_modules_are_asked_about_on_every_page_and_imported_by_none(
    open_page: Open, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scalebook.toml").write_text('modules = ["mine"]\n', encoding="utf-8")
    (tmp_path / "mine.py").write_text("open(__file__ + '.ran', 'w')", encoding="utf-8")
    monkeypatch.setattr(supervisor_handle, "ensure", lambda _: None)
    for page in ("", "runs"):
        app = open_page(page)
        assert QUESTION in words(app)
        assert f"module mine, from {tmp_path / 'mine.py'}" in listed(app)
    assert not (tmp_path / "mine.py.ran").exists()
    app.button(key="trust-folder").click().run()
    assert not app.exception
    assert trusted(workspace)
    assert QUESTION not in words(app)


@pytest.mark.usefixtures("forked_descriptions")
def test_an_experiment_with_own_classes_has_their_fields_once_the_folder_is_trusted(
    open_page: Open, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scalebook.toml").write_text('modules = ["mine"]\n', encoding="utf-8")
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    (tmp_path / "own.md").write_text(OWN, encoding="utf-8")
    monkeypatch.setattr(supervisor_handle, "ensure", lambda _: None)
    app = open_page("compose", notebook="own", cell="small")
    before = config(app)
    assert not has_number(app, "Width")
    app.button(key="trust-folder").click().run()
    assert not app.exception
    assert choice(app, "Model").value.name == "Mine"
    assert [number(app, label).value for label in ("Width", "Rows", "Batch size per worker")] == [7, 20, 4]
    assert config(app) == before
    assert drafts.load(workspace, SavedDraft, "own", "small") is None
    number(app, "Width").set_value(9).run()
    assert config(app)["model"]["init_args"] == {"width": 9}
    pick(app, "Model", "PixelCNN")
    assert not has_number(app, "Width")


def test_what_was_found_is_counted() -> None:
    assert TrustQuestion({}, 1, 2).lines() == [
        "1 waiting job that was not submitted here",
        "2 open searches that were not submitted here",
    ]
