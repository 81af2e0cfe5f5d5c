"""An empty folder: what can be begun there, without a terminal."""

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from scalebook.app.notebook.managing import SHIPPED, SUGGESTED
from scalebook.app.notebook.page import FIRST
from scalebook.training.asking import all_recipes
from scalebook.training.base.trust import trusted
from scalebook.training.base.workspace import SETTINGS, Workspace
from scalebook.training.jobs import supervisor_handle
from scalebook.training.notebook.examples import EXAMPLES
from tests.app.pages.conftest import Open, codes, html, read_models, words

OWN = """
import lightning as L
open(__file__ + ".ran", "w")
class Net(L.LightningModule): pass
class Points(L.LightningDataModule): pass
"""


@pytest.fixture(autouse=True)
def _empty(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    (workspace.root / "first-steps.md").unlink()
    monkeypatch.setattr(supervisor_handle, "ensure", lambda _: None)


def press(app: AppTest, label: str) -> AppTest:
    next(one for one in app.button if one.label == label).click().run()
    assert not app.exception, app.exception[0].value
    return app


def test_an_empty_folder_says_what_scalebook_is_and_offers_four_beginnings(open_page: Open) -> None:
    app = open_page()
    assert "An experiment notebook for PyTorch Lightning models" in words(app)
    beginnings = ["Ask a question", "Add the examples", "New notebook", "Use my own model"]
    assert [one.label for one in app.button] == beginnings
    for recipe in all_recipes().values():
        assert f"- {recipe.question}" in words(app)


def test_the_examples_are_added_by_one_click(open_page: Open, workspace: Workspace) -> None:
    app = press(open_page(), "Add the examples")
    names = {path.name for path in EXAMPLES.glob("*.md")}
    assert {path.name for path in workspace.notebooks()} == names
    assert app.selectbox[0].label == "Notebook"
    assert len(app.selectbox[0].options) == len(names)


@pytest.mark.usefixtures("forked_descriptions")
def test_a_module_of_the_folder_is_named_and_not_run_before_it_is_trusted(
    open_page: Open, workspace: Workspace, tmp_path: Path
) -> None:
    (tmp_path / "nets.py").write_text(OWN, encoding="utf-8")
    app = press(open_page(), "Use my own model")
    assert "model: Net · data: Points" in html(app)
    app.button(key="use-nets").click().run()
    assert not app.exception
    assert (tmp_path / SETTINGS).read_text(encoding="utf-8") == 'modules = ["nets"]\n'
    assert "This folder wants to run its own code" in words(app)
    assert f"module nets, from {tmp_path / 'nets.py'}" in "".join(codes(app))
    assert not trusted(workspace)
    assert not (tmp_path / "nets.py.ran").exists()
    app = press(app, "Use my own model")
    assert app.button(key="use-nets").label == "In use"
    assert app.button(key="use-nets").disabled


@pytest.mark.usefixtures("forked_descriptions")
def test_a_package_is_used_as_a_whole_and_trusted_once(open_page: Open, workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir()
    for name in ("nets", "texts", "tables"):
        (tmp_path / "lab" / f"{name}.py").write_text(OWN.replace("Net", name.capitalize()), encoding="utf-8")
    (tmp_path / "more.py").write_text(OWN.replace("Net", "More"), encoding="utf-8")
    app = press(press(open_page(), "Use my own model"), "Use all 3")
    assert (tmp_path / SETTINGS).read_text(encoding="utf-8") == 'modules = ["lab.nets", "lab.tables", "lab.texts"]\n'
    assert list((tmp_path / "lab").glob("*.ran")) == []
    app = press(app, "Trust this folder")
    assert trusted(workspace)
    assert "Trust this folder" not in [one.label for one in app.button]
    app = press(app, "Use my own model")
    assert app.button(key="use-lab").label == "In use"
    app.button(key="use-more").click().run()
    assert 'modules = ["more", "lab.nets"' in (tmp_path / SETTINGS).read_text(encoding="utf-8")
    assert trusted(workspace), "who trusts the folder has added a module to it"


@pytest.mark.usefixtures("forked_descriptions")
def test_a_question_in_an_empty_folder_is_about_the_users_own_model(open_page: Open, tmp_path: Path) -> None:
    """Its modules are registered and trusted first; then comes the form of an experiment with its classes."""
    (tmp_path / "nets.py").write_text(OWN, encoding="utf-8")
    app = press(open_page(), "Ask a question")
    assert "model: Net · data: Points" in html(app)
    app.button(key="use-nets").click().run()
    assert "This folder wants to run its own code" in words(app)
    assert list(tmp_path.glob("*.md")) == []
    app = read_models(press(app, "Trust this folder"))
    assert FIRST in [one.value for one in app.toast]
    assert (tmp_path / "questions.md").exists()
    chosen = {one.label: getattr(one.value, "name", "") for one in app.selectbox}
    assert (chosen["Model"], chosen["Data"]) == ("Net", "Points")


def test_a_question_in_an_empty_folder_may_be_about_a_model_that_ships(open_page: Open, tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(OWN, encoding="utf-8")
    app = press(press(open_page(), "Ask a question"), SHIPPED)
    assert FIRST in [one.value for one in app.toast]
    assert not (tmp_path / SETTINGS).exists()
    (tmp_path / "nets.py").unlink()
    (tmp_path / "questions.md").unlink()
    assert FIRST in [one.value for one in press(open_page(), "Ask a question").toast], "nothing of one's own there"


def test_a_template_is_written_and_a_taken_name_refused_in_the_dialog(open_page: Open, tmp_path: Path) -> None:
    app = press(press(open_page(), "Use my own model"), "Create file")
    assert (tmp_path / f"{SUGGESTED}.py").exists()
    assert (tmp_path / SETTINGS).read_text(encoding="utf-8") == f'modules = ["{SUGGESTED}"]\n'
    app = press(press(app, "Use my own model"), "Create file")
    assert "my_model exists already. Choose another name" in app.error[0].value


def test_help_is_a_page_of_the_frame_and_opens_the_documents(open_page: Open) -> None:
    shown = words(open_page("help"))
    assert '<a href="/help?document=tutorial/index" target="_self">Tutorial</a>' in shown
    assert "](tutorial/" not in shown


def test_a_document_has_its_own_address(open_page: Open) -> None:
    shown = words(open_page("help", document="how-to/export"))
    assert "**Export, archive and verify**" in shown
    assert "scalebook notebook export first-steps.md --archive" in shown


def test_a_document_that_is_not_there_is_said(open_page: Open) -> None:
    app = open_page("help", document="../../secrets")
    assert app.warning[0].value == "There is no document ../../secrets."
