"""Packages that only an extra installs: what is said where they are missing, and that pyproject.toml installs them."""

import ast
import importlib.metadata
import json
import re
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from scalebook.training.base import extras
from scalebook.training.base.errors import ConfigError
from scalebook.training.base.workspace import Workspace
from scalebook.training.cli.describe import describe
from scalebook.training.experiments.catalogue import content_hash
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.validation import validate
from scalebook.training.zoo.data import Dataset, Digits, Docstrings, Messages
from scalebook.training.zoo.models import Translator

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BROUGHT = {
    "huggingface_hub": "datasets", "lightning_fabric": "lightning", "lightning_utilities": "lightning",
    "pandas": "streamlit", "pytorch_lightning": "lightning", "starlette": "streamlit", "typing_extensions": "torch",
    "uvicorn": "streamlit",
}  # fmt: skip
"""What is imported and not named: it always comes with another."""
NOT_IMPORTED = {"jupyterlab-language-pack-fr-fr", "psycopg", "ray", "scikit-learn"}
"""Two have files that are read, SQLAlchemy imports one, and one is imported by `importlib`."""


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Leave out modules, as if they were not installed."""

    def leave_out(*modules: str) -> None:
        monkeypatch.setattr(extras, "find_spec", lambda name: None if name in modules else find_spec(name))

    return leave_out


def test_a_class_says_what_it_lacks_and_how_to_install_it(without: Any) -> None:
    without(*extras.PACKAGES)
    why = "needs jupyterlab-language-pack-fr-FR and sentencepiece, which are not installed"
    assert extras.missing_packages(Messages) == (why, 'Run pip install "scalebook[examples]".')
    why = "needs datasets, which is not installed"
    assert extras.missing_packages(Dataset) == (why, 'Run pip install "scalebook[datasets]".')
    for key, kind in (("data", Messages), ("data", Digits), ("data", Dataset), ("model", Translator)):
        with pytest.raises(ConfigError, match=rf'^{key}: is {kind.__name__}, which needs .*pip install "scalebook\['):
            kind()
    assert extras.missing_packages(Docstrings) is None
    assert extras.missing_packages(type("Own", (), {"needs": 7})) is None


def test_a_check_refuses_what_is_missing_and_everything_else_stays(without: Any, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path).create()
    whole = content_hash(workspace)
    without("sentencepiece")
    assert content_hash(workspace) != whole, "what was described before is not what there is now"
    description = describe(workspace)
    assert [info.name for info in description.data] == ["Dataset", "Digits", "Docstrings", "PhotoPatches"]
    assert [info.name for info in description.models] == ["ConvClassifier", "MLPClassifier", "PixelCNN", "Ranker"]
    assert [one.class_path.rpartition(".")[2] for one in description.refused if one.lacks_extra] == [
        "Translator", "Messages",
    ]  # fmt: skip
    problems = validate(Experiment({"model": "Translator", "data": "Messages"}, description))
    fix = 'Run pip install "scalebook[examples]".'
    assert [(one.key, one.message, one.fix) for one in problems if one.severity == "error"] == [
        ("model", "names 'Translator', which needs sentencepiece, which is not installed", fix),
        ("data", "names 'Messages', which needs sentencepiece, which is not installed", fix),
    ]
    assert json.loads(description.to_json())["refused"]


def test_each_package_is_in_the_extra_that_is_named_for_it() -> None:
    for package, extra in extras.PACKAGES.values():
        named = [Requirement(line).name for line in PROJECT["optional-dependencies"][extra]]
        assert package in named
        assert package not in [Requirement(line).name for line in PROJECT["dependencies"]]


def test_what_is_imported_is_installed_and_what_is_installed_is_imported() -> None:
    named = {*PROJECT["dependencies"]}
    for extra in ("examples", "postgres", "datasets", "cluster"):
        named.update(PROJECT["optional-dependencies"][extra])
    declared = {canonical(Requirement(line).name) for line in named}
    homes = importlib.metadata.packages_distributions()
    imported = {module for folder in ("app", "pages", "training", "scalebook") for module in modules(ROOT / folder)}
    imported -= {"scalebook", *sys.stdlib_module_names}
    homes_of = {module: {canonical(home) for home in homes.get(module, [module])} for module in imported}
    assert {module for module, found in homes_of.items() if not found & declared} == BROUGHT.keys()
    assert declared - set[str]().union(*homes_of.values()) == NOT_IMPORTED
    for module, home in BROUGHT.items():
        needed = {canonical(Requirement(line).name) for line in importlib.metadata.requires(home) or []}
        assert homes_of[module] & needed, module


def modules(folder: Path) -> set[str]:
    """The top-level modules that its files import, anywhere in them."""
    found = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.partition(".")[0])
    return found


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
