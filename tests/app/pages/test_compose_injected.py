"""The form of a model that takes parts from outside: a net, and what makes its optimizer."""

from pathlib import Path

import pytest

from scalebook.training.base.trust import trust
from scalebook.training.base.workspace import Workspace
from tests.app.pages.compose_form import as_yaml, choice, config, off, pick
from tests.app.pages.conftest import Open, number
from tests.training.injections import MODULE, NAME, path

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("forked_descriptions")]


@pytest.mark.thorough
def test_its_parts_are_chosen_with_their_settings(open_page: Open, workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "scalebook.toml").write_text(f'modules = ["{NAME}"]\n', encoding="utf-8")
    (tmp_path / f"{NAME}.py").write_text(MODULE, encoding="utf-8")
    trust(workspace)
    app = open_page("compose", notebook="first-steps")
    pick(app, "Model", "WithNet")
    assert choice(app, "Net").options[:3] == ["Narrow", "Scaled", "AdaptiveAvgPool1d"]
    assert off(app) == (True, True), "a net is required"
    pick(app, "Net", "Scaled")
    pick(app, "Inner", "Narrow")
    number(app, "Width").set_value(5).run()
    number(app, "Factor").set_value(2.0).run()
    assert choice(app, "Optimizer").value.name == "SGD", "the model's own default"
    pick(app, "Optimizer", "Adam")
    assert choice(app, "Scheduler").options[0] == "none"
    pick(app, "Scheduler", "StepLR")
    number(app, "Step size").set_value(2).run()
    inner = {"class_path": path("Narrow"), "init_args": {"width": 5}}
    assert config(app)["model"]["init_args"] == {
        "net": {"class_path": path("Scaled"), "init_args": {"inner": inner, "factor": 2.0}},
        "optimizer": {"class_path": "torch.optim.Adam"},
        "scheduler": {"class_path": "torch.optim.lr_scheduler.StepLR", "init_args": {"step_size": 2}},
    }
    assert off(app) == (False, False), [one.value for one in app.error]

    said = [one.value for one in app.warning]
    assert f"One of your classes cannot be used. {path('Untyped')} has an argument without a type: width. " in said[0]
    assert path("Trained") not in "".join(said), "what is there to be derived from"
    as_yaml(app, f"model: {{class_path: {path('WithNet')}, init_args: {{net: {path('Unclear')}}}}}\ndata: Digits\n")
    assert any("which has an argument without a type: width" in one.value for one in app.error)
