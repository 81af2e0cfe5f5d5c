"""The set-up of a search starts nothing but what it shows."""

import pytest
from streamlit.testing.v1 import AppTest

from tests.app.pages.conftest import Open, html, number
from tests.app.pages.test_search_page import CELL, preset, press, setting_up


@pytest.mark.thorough
def test_a_field_that_holds_no_such_number_blocks_the_search(open_page: Open) -> None:
    app = preset(setting_up(open_page, experiment=CELL), "batch-size")
    for label, typed in (("From, learning_rate", "1,5"), ("To, learning_rate", "much"), ("Reference batch", "0")):
        refused(app, label, typed)
    app = press(app, "Next: sampler and pruner")
    for label, typed in (
        ("Trials", "0"), ("Trials", "1,5"), ("Seeds per trial", "two"), ("Time limit, minutes", "-1"),
        ("Target", "low"), ("Failures allowed before the search stops", "0"), ("Memory per process, MB", "1.5"),
    ):  # fmt: skip
        refused(app, label, typed)
    number(app, "Trials").set_value("0")
    app.button(key="search-start").click().run()
    assert not app.exception
    assert any("Not started" in one.value for one in app.toast)


def refused(app: AppTest, label: str, typed: str) -> None:
    before = number(app, label).box.value
    number(app, label).set_value(typed).run()
    assert not app.exception, (label, typed)
    assert app.button(key="search-start").disabled, (label, typed)
    assert app.button(key="search-save").disabled, (label, typed)
    assert app.error, (label, typed)
    assert number(app, label).box.value == typed
    number(app, label).set_value(before).run()
    assert not app.button(key="search-start").disabled, (label, typed)


def test_what_the_notebook_does_not_have_is_said(open_page: Open) -> None:
    assert "First steps has no search called gone" in html(setting_up(open_page, cell="gone"))
    assert "First steps has no experiment called gone" in html(setting_up(open_page, experiment="gone"))
