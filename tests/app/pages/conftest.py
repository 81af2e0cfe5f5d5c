"""The app without a browser: `open_page` runs a page in Streamlit's own test harness on a workspace on disk."""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pandas as pd
import pytest
from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import AppTest

from scalebook.app import resources
from scalebook.app.navigation import NOTEBOOK, PLACES
from scalebook.app.shared.widgets import number_text, read_number
from scalebook.training.base.files.records import save
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments import model_parameters
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.model_parameters import ModelParameter, ModelParameters
from tests.shared_files import Prepared

MAIN = str(Path(__file__).resolve().parents[3] / "app" / "main.py")
TEXT = """---
title: First steps
---
# Question

Does staleness hurt?

```yaml experiment=pixelcnn-async-2
repeats: 2   # seeds 1 and 2
config:
  seed_everything: 1
  trainer: {strategy: {class_path: AsyncPS, init_args: {rule: async}}, devices: 2, max_epochs: 5}
  model: {class_path: scalebook.training.zoo.models.PixelCNN}
  data: {class_path: scalebook.training.zoo.data.Digits, init_args: {batch_size: 32}}
  optimizer: {class_path: torch.optim.Adam, init_args: {lr: 0.001}}
```
"""
Open = Callable[..., AppTest]


@pytest.fixture(scope="session", autouse=True)
def _packages_are_scanned_once() -> Iterator[None]:
    """A server of Streamlit's asks every installed package at its start whether it has components, `AppTest` for each
    page that a test opens: half of what these tests took."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest_scanner, "scan_component_manifests", cache(manifest_scanner.scan_component_manifests))
        yield


@pytest.fixture
def workspace(tmp_path: Path, prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A workspace with one notebook."""
    found = prepared.into(Workspace(tmp_path))
    (tmp_path / "first-steps.md").write_text(TEXT, encoding="utf-8")
    monkeypatch.setenv("SCALEBOOK_WORKSPACE", str(tmp_path))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return found


@pytest.fixture
def open_page(workspace: Workspace) -> Open:
    """`open_page("runs", run=ID)`: the page at this path with these parameters, once models have been read."""

    def open_it(path: str = "", *, reads: bool = True, **parameters: str) -> AppTest:
        place = next(one for one in PLACES if one.path == path)
        app = AppTest.from_file(MAIN, default_timeout=30)
        for name, value in parameters.items():
            app.query_params[name] = value
        if place is not NOTEBOOK:
            app.switch_page(place.script)  # at once, as from an address: no page is drawn before it
        app.run()
        assert not app.exception, app.exception[0].value
        return read_models(app) if reads else app

    return open_it


def read_models(app: AppTest) -> AppTest:
    """The page once models have been read, if they were being read."""
    deadline = time.monotonic() + 100
    while any("Reading Scalebook's models" in one.value for one in app.caption):
        while resources.reads_models():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        app.run()
    return app


@dataclass(frozen=True)
class NumberBox:
    """A box for a number: one of text, since it keeps what is typed."""

    box: Any

    @property
    def value(self) -> int | float | str | None:
        return read_number(self.box.value, whole="." not in self.box.value)

    @property
    def key(self) -> str:
        return str(self.box.key)

    def set_value(self, value: float | str) -> Any:
        return self.box.set_value(value if isinstance(value, str) else number_text(value))


def has_number(app: AppTest, label: str) -> bool:
    return any(one.label == label for one in app.text_input)


def number(app: AppTest, label: str) -> NumberBox:
    return NumberBox(next(one for one in app.text_input if one.label == label))


def html(app: AppTest) -> str:
    """All that the page shows through our own HTML."""
    return "\n".join(element.proto.body for element in app.get("html"))


def run_names(table: pd.DataFrame) -> list[str]:
    """What the links of a table of runs show."""
    return [parse_qs(urlsplit(address).query)["called"][0] for address in table["name"]]


def codes(app: Any) -> list[str]:
    """The texts in letters of one width, of the page or of a part of it."""
    found = "".join(element.proto.body for element in app.get("html"))
    return [unescape(re.sub("<[^>]*>", "", one)) for one in re.findall("<code>(.*?)</code>", found, re.DOTALL)]


def words(app: AppTest) -> str:
    """All text of the page: HTML, Markdown, messages."""
    kinds = (app.markdown, app.caption, app.error, app.info, app.warning, app.title, app.header)
    return html(app) + "\n".join(element.value for kind in kinds for element in kind)


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """In place of a process that makes the model, some seconds long, its parameters are kept at once. The configs whose
    models were asked for."""
    asked_for: list[Any] = []

    def find_out(asked: Experiment) -> None:
        asked_for.append(asked)
        place = model_parameters.kept_at("parameters", asked)
        assert place is not None
        save(place, ModelParameters([ModelParameter("weight", [100, 50], "float32")]))

    monkeypatch.setattr(resources, "find_out", find_out)
    return asked_for
