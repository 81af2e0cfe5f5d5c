"""What tests of the compose page do with its form, and read beside it."""

import time
from collections.abc import Callable
from typing import Any

from streamlit.testing.v1 import AppTest

from scalebook.training.base.files import yaml
from tests.app.pages.conftest import codes


def choice(app: AppTest, label: str) -> Any:
    return next(one for one in app.selectbox if one.label == label)


def config(app: AppTest) -> dict[str, Any]:
    """The YAML beside the form."""
    return dict(yaml.load(next(one for one in codes(app) if "trainer:" in one)))


def pick(app: AppTest, label: str, option: str) -> None:
    box = choice(app, label)
    found = box.options.index(option) if option in box.options else None
    box.select_index(next(i for i, one in enumerate(box.options) if option in one) if found is None else found).run()


def strategy_args(app: AppTest) -> dict[str, Any]:
    return dict(config(app)["trainer"]["strategy"]["init_args"])


def off(app: AppTest) -> tuple[bool, bool]:
    """Whether Run and Save are."""
    return app.button(key="compose-run").disabled, app.button(key="compose-save").disabled


def as_yaml(app: AppTest, text: str) -> None:
    """Edit the config as text, then go back to the form."""
    app.segmented_control(key="compose-mode").set_value("YAML").run()
    next(one for one in app.text_area if one.label == "Config").set_value(text).run()
    app.segmented_control(key="compose-mode").set_value("Form").run()


def captions(app: AppTest) -> list[str]:
    return [one.value for one in app.caption]


def run_until(app: AppTest, condition: Callable[[], bool]) -> None:
    """A thread behind the page finds it out."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, captions(app)
        app.run()
