"""The question whether a folder is to be trusted."""

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from scalebook.app.shared.services.trusting import TrustQuestion
from scalebook.training.jobs import supervising
from scalebook.training.trust import trusted
from scalebook.training.workspace import Workspace
from tests.app.pages.conftest import Open, codes, words

QUESTION = "This folder wants to run code of its own"


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
    monkeypatch.setattr(supervising, "ensure", lambda _: None)
    for page in ("", "runs"):
        app = open_page(page)
        assert QUESTION in words(app)
        assert f"module mine, from {tmp_path / 'mine.py'}" in listed(app)
    assert not (tmp_path / "mine.py.ran").exists()
    app.button(key="trust-folder").click().run()
    assert not app.exception
    assert trusted(workspace)
    assert QUESTION not in words(app)


def test_what_was_found_is_counted() -> None:
    assert TrustQuestion({}, 1, 2).lines() == [
        "1 waiting job, not submitted here",
        "2 open searches, not submitted here",
    ]
