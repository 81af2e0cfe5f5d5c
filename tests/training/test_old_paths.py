"""Names of version 0.1 work for one version: imports by them, with a warning, and class paths in configs."""

import sys
from importlib import import_module

import pytest

from scalebook.training.experiments.renamed import renewed
from scalebook.training.old_paths import MOVED


@pytest.mark.parametrize("old", MOVED)
def test_an_old_module_hands_out_what_the_new_one_has(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, old, raising=False)
    with pytest.warns(FutureWarning, match="Import it from there"):
        module = import_module(old)
    new = import_module(MOVED[old])
    public = [name for name in vars(new) if not name.startswith("_")]
    assert all(getattr(module, name) is getattr(new, name) for name in public)
    assert not hasattr(module, "__file__"), "who looks for the module of a file finds the new one"
    sys.modules.pop(old)


def test_an_old_class_path_is_read_and_the_new_one_is_said() -> None:
    config = {
        "data": {"class_path": "scalebook.training.data.Digits"},
        "trainer": {"callbacks": [{"class_path": "x.Y"}]},
    }
    content, said = renewed(config)
    assert content["data"] == {"class_path": "scalebook.training.zoo.data.Digits"}
    assert content["trainer"] == config["trainer"]
    assert [(one.key, one.remedy, one.severity) for one in said] == [
        ("data.class_path", "Write scalebook.training.zoo.data.Digits.", "warning")
    ]
