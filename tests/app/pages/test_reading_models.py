"""Pages while models and strategies are read, as after a start of the server: what needs none of them is shown."""

import time
from collections.abc import Callable
from threading import Event

import pytest

from scalebook.app import resources
from scalebook.training.base.errors import ConfigError
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments import catalogue
from scalebook.training.experiments.description import Description
from tests.app.pages.conftest import Open, codes, words


@pytest.fixture
def unread(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Models that have not been read, until it is called."""
    kept = [path.rename(path.with_suffix(".aside")) for path in workspace.cache.glob("describe-*.json")]
    resources.look_anew()
    ends, describe = Event(), catalogue.describe

    def look(place: Workspace) -> Description:
        assert ends.wait(60)
        return describe(place)

    def read() -> None:
        for aside in kept:
            aside.rename(aside.with_suffix(".json"))
        ends.set()
        deadline = time.monotonic() + 60
        while resources.reads_models():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    monkeypatch.setattr(catalogue, "describe", look)
    return read


def test_a_notebook_is_shown_while_models_are_being_read(open_page: Open, unread: Callable[[], None]) -> None:
    app = open_page(reads=False)
    assert "Does staleness hurt?" in words(app)
    assert any("max_epochs: 5" in one for one in codes(app))
    assert any("Reading Scalebook's models, data sets and strategies." in one.value for one in app.caption)
    assert "Run" not in [one.label for one in app.button]
    unread()
    app.run()
    assert "Run" in [one.label for one in app.button]
    assert not any("Reading Scalebook's models" in one.value for one in app.caption)


def test_a_form_has_its_title_while_models_are_being_read(open_page: Open, unread: Callable[[], None]) -> None:
    app = open_page("compose", reads=False, notebook="first-steps")
    assert [one.value for one in app.title] == ["New experiment"]
    assert any("Reading Scalebook's models" in one.value for one in app.caption)
    unread()
    app.run()
    assert [one.value for one in app.title] == ["New experiment"]
    assert "Model" in [one.label for one in app.selectbox]


def test_models_that_cannot_be_read_leave_the_notebook_visible(
    open_page: Open, unread: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Workspace) -> Description:
        raise ConfigError("describe", "failed: no such module", "Fix it.")

    monkeypatch.setattr(catalogue, "describe", fail)
    app = open_page(reads=False)
    deadline = time.monotonic() + 60
    while not app.error:
        assert time.monotonic() < deadline
        app.run()
    assert app.error[0].value == "describe: failed: no such module. Fix it."
    assert "Does staleness hurt?" in words(app)
