from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from scalebook.app import resources
from scalebook.app.plan.data import from_fields
from scalebook.training.base.files.records import save
from scalebook.training.base.trust import trust
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments.catalogue import describe
from scalebook.training.experiments.description import ClassInfo
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.identity import config_hash
from scalebook.training.jobs import DryRunResult, dry_runs
from scalebook.training.notebook import store
from scalebook.training.planner.question_folder import PlanRequest, QuestionFolder
from scalebook.training.pricing.profile import profile_mapping
from scalebook.training.tracking import names
from tests.app.pages.compose_form import as_yaml, choice, config, off, pick, run_until, strategy_args
from tests.app.pages.conftest import Open, codes, has_number, html, number
from tests.app.recorded import record

pytestmark = pytest.mark.long

ASYNC = "AsyncPS"
USERS_MODULE = '''
import torch
from lightning import LightningModule


class Mine(LightningModule):
    """Has its own optimizer.

    Args:
        width: How wide it is.
    """

    def __init__(self, width: int = 3) -> None:
        super().__init__()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
'''


def test_the_blank_form_makes_a_complete_config(open_page: Open) -> None:
    app = open_page("compose", notebook="first-steps")
    assert config(app)["model"] == {"class_path": "scalebook.training.zoo.models.PixelCNN"}
    assert not app.button(key="compose-run").disabled
    assert [one.value for one in app.error] == []
    assert "scalebook notebook run" in codes(app)[1]
    assert "--cell pixelcnn-single" in codes(app)[1]


@pytest.mark.usefixtures("looked_at")
def test_the_grey_name_is_the_one_that_is_saved(open_page: Open) -> None:
    app = open_page("compose", notebook="first-steps")
    for option, shown in (("DDP", "ddp-x2"), ("Parameter server", "asyncps-x2"), ("One process", "single")):
        pick(app, "Strategy", option)
        grey = next(one for one in app.text_input if one.label == "Name").placeholder
        assert grey == f"pixelcnn-{shown}"
        assert f"--cell {grey}\n" in codes(app)[1]


@pytest.mark.usefixtures("looked_at")
def test_strategy_and_workers_change_yaml_and_batch_sizes(open_page: Open) -> None:
    app = open_page("compose", notebook="first-steps")
    pick(app, "Strategy", "Parameter server")
    number(app, "Workers").set_value(4).run()
    number(app, "Batch size per worker").set_value(16).run()
    trainer = config(app)["trainer"]
    assert trainer["strategy"]["class_path"].endswith("AsyncPS")
    assert trainer["devices"] == 4
    shown = html(app)
    assert "<span>global batch</span><b>64</b>" in shown
    assert "<span>effective batch</span><b>16</b>" in shown
    pick(app, "Strategy", "DDP")
    assert "<span>effective batch</span><b>64</b>" in html(app)
    assert config(app)["trainer"]["strategy"] == "ddp"


def test_a_problem_is_shown_at_its_field_and_blocks_run(open_page: Open) -> None:
    app = open_page("compose", notebook="first-steps")
    as_yaml(app, "model: PixelCNN\ndata: {class_path: Digits, init_args: {batch_size: many}}\n")
    assert any("'many' is not a whole number" in one.value for one in app.error)
    assert off(app) == (True, True)
    number(app, "Batch size per worker").set_value(8).run()
    assert off(app) == (False, False)


def test_a_closed_fold_keeps_what_it_says(open_page: Open) -> None:
    app = open_page("compose", notebook="first-steps")
    as_yaml(app, "model: PixelCNN\ndata: Digits\ntrainer: {gradient_clip_val: 0.5, max_epochs: 2}\nthreads: 2\n")
    number(app, "Epochs").set_value(3).run()
    assert config(app)["trainer"]["gradient_clip_val"] == 0.5
    assert config(app)["threads"] == 2
    assert not has_number(app, "Threads")
    version = str(number(app, "Epochs").key).split(".")[1]
    app.session_state[f"compose.{version}.fold.trainer"] = True
    app.run()
    number(app, "Threads").set_value(4).run()
    app.session_state[f"compose.{version}.fold.trainer"] = False
    app.run()
    number(app, "Epochs").set_value(5).run()
    assert config(app)["threads"] == 4


def test_the_precision_of_matrix_products_is_a_choice(open_page: Open) -> None:
    app = open_page("compose", notebook="first-steps")
    assert "float32_matmul_precision" not in config(app)
    version = str(number(app, "Epochs").key).split(".")[1]
    app.session_state[f"compose.{version}.fold.trainer"] = True
    app.run()
    box = choice(app, "Float32 matmul precision")
    assert "TF32 on a GPU that supports it" in box.help
    box.set_value("high").run()
    assert config(app)["float32_matmul_precision"] == "high"
    assert [one.value for one in app.error] == []


@pytest.mark.usefixtures("looked_at")
def test_save_writes_the_cell_and_the_draft_is_gone(open_page: Open, workspace: Workspace) -> None:
    app = open_page("compose", notebook="first-steps")
    pick(app, "Strategy", "DDP")
    number(app, "Seeds").set_value(3).run()
    app.button(key="compose-save").click().run()
    cell = store.read(workspace.root / "first-steps.md").notebook.experiment("pixelcnn-ddp-x2")
    assert cell is not None
    assert cell.repeats == 3
    assert cell.config["trainer"]["strategy"] == "ddp"
    assert list(workspace.cache.glob("draft-*")) == []


def test_what_was_typed_survives_a_new_session(open_page: Open) -> None:
    app = open_page("compose", notebook="first-steps")
    pick(app, "Strategy", "Parameter server")
    number(app, "Workers").set_value(7).run()
    again = open_page("compose", notebook="first-steps")
    assert number(again, "Workers").value == 7
    next(one for one in again.button if one.label == "Start over").click().run()
    assert choice(again, "Strategy").value.name != ASYNC


@pytest.mark.usefixtures("looked_at")
def test_the_suggested_name_follows_the_yaml(open_page: Open, workspace: Workspace) -> None:
    app = open_page("compose", notebook="first-steps")
    app.segmented_control(key="compose-mode").set_value("YAML").run()
    pasted = "model: MLPClassifier\ndata: Digits\ntrainer: {strategy: ddp, devices: 2, max_epochs: 1}\n"
    next(one for one in app.text_area if one.label == "Config").set_value(pasted).run()
    assert name_box(app).placeholder == "mlpclassifier-ddp-x2"
    app.button(key="compose-save").click().run()
    names = [cell.name for cell in store.read(workspace.root / "first-steps.md").notebook.experiments()]
    assert names[-1] == "mlpclassifier-ddp-x2"


def test_a_name_is_typed_beside_the_yaml_as_beside_the_form(open_page: Open, workspace: Workspace) -> None:
    app = open_page("compose", notebook="first-steps")
    app.segmented_control(key="compose-mode").set_value("YAML").run()
    name_box(app).set_value("pixelcnn-async-2").run()
    assert any("is already used" in one.value for one in app.error)
    assert app.button(key="compose-save").disabled
    name_box(app).set_value("mine").run()
    area = next(one for one in app.text_area if one.label == "Config")
    area.set_value("trainer: {max_epochs: 2}\nmodel: PixelCNN\ndata: Digits\n").run()
    assert name_box(app).value == "mine", "what is typed stays"
    app.button(key="compose-save").click().run()
    cells = {cell.name: cell for cell in store.read(workspace.root / "first-steps.md").notebook.experiments()}
    assert cells["mine"].config["trainer"] == {"max_epochs": 2}


def name_box(app: AppTest) -> Any:
    return next(one for one in app.text_input if one.label == "Name")


def test_a_cell_is_loaded_edited_and_renamed_in_place(open_page: Open, workspace: Workspace) -> None:
    app = open_page("compose", notebook="first-steps", cell="pixelcnn-async-2")
    assert number(app, "Workers").value == 2
    assert number(app, "Learning rate").value == 0.001
    number(app, "Learning rate").set_value(0.01).run()
    next(one for one in app.text_input if one.label == "Name").set_value("faster").run()
    app.button(key="compose-save").click().run()
    text = (workspace.root / "first-steps.md").read_text(encoding="utf-8")
    assert "experiment=faster" in text
    assert "# seeds 1 and 2" in text  # a comment in the cell survives the form
    assert [one.name for one in store.read(workspace.root / "first-steps.md").notebook.experiments()] == ["faster"]


def test_a_name_that_is_taken_is_refused_at_its_field(open_page: Open) -> None:
    app = open_page("compose", notebook="first-steps")
    next(one for one in app.text_input if one.label == "Name").set_value("pixelcnn-async-2").run()
    assert any("is already used" in one.value for one in app.error)
    assert app.button(key="compose-run").disabled


def test_yaml_is_edited_as_text_and_its_mistakes_are_named(open_page: Open) -> None:
    app = open_page("compose", notebook="first-steps")
    app.segmented_control(key="compose-mode").set_value("YAML").run()
    area = next(one for one in app.text_area if one.label == "Config")
    area.set_value(f"{area.value}  : [").run()
    assert any("is not YAML" in one.value for one in app.error)
    assert app.button(key="compose-run").disabled
    area = next(one for one in app.text_area if one.label == "Config")
    area.set_value("trainer: {max_epochs: 2}\nmodel: PixelCNN\ndata: Digits\nckpt_path: a.ckpt\n").run()
    assert not app.button(key="compose-run").disabled
    app.segmented_control(key="compose-mode").set_value("Form").run()
    assert number(app, "Epochs").value == 2
    assert config(app)["ckpt_path"] == "a.ckpt"


@pytest.mark.thorough
@pytest.mark.usefixtures("forked_descriptions")
def test_a_users_own_model_appears_and_keeps_its_optimizer(
    open_page: Open, workspace: Workspace, tmp_path: Path
) -> None:
    (tmp_path / "scalebook.toml").write_text('modules = ["mine"]\n', encoding="utf-8")
    (tmp_path / "mine.py").write_text(USERS_MODULE, encoding="utf-8")
    trust(workspace)
    app = open_page("compose", notebook="first-steps")
    pick(app, "Model", "Mine")
    assert choice(app, "Model").options[0] == "Mine (yours)", "own classes come first"
    assert any("in its `configure_optimizers`" in one.value for one in app.info)
    assert "optimizer" not in config(app)
    assert number(app, "Width").value == 3


def test_the_data_of_an_own_model_comes_with_it(open_page: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    found = resources.description()
    models = [ClassInfo(f"lab.{name}.Net", f"{name}.Net", source="user") for name in ("images", "texts")]
    data = [ClassInfo(f"lab.{name}.Data", f"{name}.Data", source="user") for name in ("images", "texts")]
    described = replace(found, models=[*found.models, *models], data=[*found.data, *data])
    monkeypatch.setattr(resources, "description", lambda: described)
    app = open_page("compose", notebook="first-steps")
    assert config(app)["data"]["class_path"].endswith("Digits")
    pick(app, "Model", "Net (yours, images)")
    assert config(app)["data"] == {"class_path": "lab.images.Data"}
    pick(app, "Model", "Net (yours, texts)")
    assert config(app)["data"] == {"class_path": "lab.texts.Data"}
    pick(app, "Data", "Data (yours, images)")
    assert config(app)["data"] == {"class_path": "lab.images.Data"}
    pick(app, "Model", "PixelCNN")
    pick(app, "Model", "Net (yours, texts)")
    assert config(app)["data"] == {"class_path": "lab.images.Data"}, "chosen by hand"


def test_a_rule_is_chosen_and_its_own_settings_appear(open_page: Open) -> None:
    app = open_page("compose", notebook="first-steps")
    pick(app, "Strategy", "Parameter server")
    assert strategy_args(app) == {"rule": "async"}
    assert choice(app, "Rule").options == ["async", "bounded", "sync", "softsync"]
    assert "**bounded**: As `async`, but no worker runs more than `bound` pushes ahead" in choice(app, "Rule").help
    assert not has_number(app, "Bound")
    pick(app, "Rule", "bounded")
    assert strategy_args(app) == {"rule": "bounded"}
    number(app, "Bound").set_value(3).run()
    assert strategy_args(app) == {
        "rule": {"class_path": "scalebook.training.engine.rules.Bounded", "init_args": {"bound": 3}}
    }
    assert "--cell pixelcnn-bounded-x2" in codes(app)[1]
    number(app, "Bound").set_value(4).run()
    assert strategy_args(app) == {"rule": "bounded"}
    pick(app, "Damping", "delay")
    number(app, "Strength").set_value(1.0).run()
    damping = {
        "class_path": "scalebook.training.engine.rules.DelayCompensation",
        "init_args": {"strength": 1.0},
    }
    assert strategy_args(app) == {"rule": "bounded", "damping": damping}
    pick(app, "Damping", "none")
    assert strategy_args(app) == {"rule": "bounded"}
    assert not app.error


@pytest.mark.usefixtures("looked_at")
def test_the_form_asks_how_a_model_is_split(open_page: Open) -> None:
    app = open_page("compose", notebook="first-steps")
    pick(app, "Strategy", "Model parallel")
    number(app, "Workers").set_value(4).run()

    def split(how: str) -> None:
        next(one for one in app.segmented_control if one.label == "How is the model split?").set_value(how).run()

    assert "init_args" not in config(app)["trainer"]["strategy"], "all workers share the parameters"
    assert not has_number(app, "Workers per layer")
    assert not has_number(app, "Stages")
    split("Tensor")
    assert strategy_args(app) == {"tensor": 4}
    number(app, "Workers per layer").set_value(2).run()
    assert strategy_args(app) == {"tensor": 2}
    assert any("averages 2 batches. Each batch is computed by 2 workers together" in one.value for one in app.caption)
    assert "<span>global batch</span><b>64</b>" in html(app)
    number(app, "Workers per layer").set_value(3).run()
    assert ["ensor 3 does not match the 4 workers" in one.value for one in app.error] == [True]
    assert app.button(key="compose-run").disabled
    split("Pipeline stages")
    assert strategy_args(app) == {"stages": 4}
    assert not app.button(key="compose-run").disabled
    number(app, "Stages").set_value(2).run()
    app.button(key="compose-save").click().run()
    again = open_page("compose", notebook="first-steps", cell="pixelcnn-modelparallel-x4")
    assert number(again, "Stages").value == 2
    assert not has_number(again, "Workers per layer")


def test_virtual_workers_have_no_nodes_and_are_in_the_suggested_name(open_page: Open) -> None:
    app = open_page("compose", notebook="first-steps")
    pick(app, "Strategy", "Parameter server")
    assert has_number(app, "Nodes")
    next(one for one in app.toggle if one.label == "Virtual workers").set_value(True).run()
    assert not has_number(app, "Nodes")
    assert next(one for one in app.text_input if one.label == "Name").proto.placeholder.endswith("-x2-virtual")


def test_settings_stay_with_their_rule_and_problems_with_their_field(open_page: Open) -> None:
    app = open_page("compose", notebook="first-steps")
    pick(app, "Strategy", "Parameter server")
    pick(app, "Rule", "sync")
    number(app, "Backup workers").set_value(1).run()
    number(app, "Workers").set_value(3).run()
    assert "<span>effective batch</span><b>64</b>" in html(app)
    assert any("averages the first 2 of 3 gradients" in one.value for one in app.caption)
    number(app, "Backup workers").set_value(3).run()
    assert [one.value for one in app.error] == [
        "Is 3, which would leave none of the 3 workers to wait for. Use at most 2, or use more workers."
    ]
    assert app.button(key="compose-run").disabled
    pick(app, "Rule", "bounded")
    assert not app.error
    pick(app, "Rule", "softsync")
    assert strategy_args(app) == {"rule": "softsync"}


def test_a_rule_by_hand_is_read_and_its_mistakes_can_be_mended(open_page: Open) -> None:
    app = open_page("compose", notebook="first-steps")
    written = "{class_path: AsyncPS, init_args: {rule: {class_path: Bounded, init_args: {bound: 7}}}}"
    as_yaml(app, f"model: PixelCNN\ndata: Digits\ntrainer: {{strategy: {written}, devices: 2}}\n")
    assert number(app, "Bound").value == 7
    as_yaml(app, f"model: PixelCNN\ndata: Digits\ntrainer: {{strategy: {written.replace('Bounded', 'Bonded')}}}\n")
    assert any("Unknown class 'Bonded'. Did you mean `Bounded`?" in one.value for one in app.error)
    next(one for one in app.text_input if one.label == "Rule").set_value("bounded").run()
    assert strategy_args(app) == {"rule": "bounded"}
    assert not app.error


@pytest.mark.thorough
@pytest.mark.usefixtures("looked_at")
def test_the_learning_rate_follows_the_batch_and_says_so(open_page: Open) -> None:
    app = open_page("compose", notebook="first-steps", cell="pixelcnn-async-2")
    assert "lr_scaling" not in config(app)
    pick(app, "Scaling with batch size", "linear")
    assert config(app)["lr_scaling"] == {"rule": "linear", "per": 256}
    number(app, "Reference batch size, samples").set_value(8).run()
    number(app, "Warm-up, epochs").set_value(0.5).run()
    assert config(app)["lr_scaling"] == {"rule": "linear", "per": 8, "warmup_epochs": 0.5}
    said = "0.001 per 8 → 0.004 at a batch of 32, reached after 0.5 epochs"
    assert said in [one.value for one in app.caption]
    assert "<span>scaled learning rate</span><b>0.004</b>" in html(app)
    pick(app, "Strategy", "DDP")
    assert any("→ 0.008 at a batch of 64" in one.value for one in app.caption)
    pick(app, "Scaling with batch size", "none")
    assert "lr_scaling" not in config(app)


def test_a_scaling_that_cannot_be_is_said_at_its_field(open_page: Open) -> None:
    app = open_page("compose", notebook="first-steps")
    as_yaml(app, "model: PixelCNN\ndata: Digits\nlr_scaling: linear\n")
    assert any("s 'linear', not a mapping" in one.value for one in app.error)
    next(one for one in app.text_input if one.label == "Scaling with batch size").set_value("{rule: sqrt}").run()
    assert config(app)["lr_scaling"] == {"rule": "sqrt"}
    assert [one.value for one in app.error] == []


def test_the_noise_scale_is_a_switch(open_page: Open) -> None:
    app = open_page("compose", notebook="first-steps")
    assert "noise_scale" not in config(app)
    next(one for one in app.toggle if one.label == "Measure the gradient noise scale").set_value(True).run()
    assert config(app)["noise_scale"] is True
    assert not app.button(key="compose-run").disabled


@pytest.mark.thorough
def test_virtual_workers_take_the_times_that_plan_measured_or_a_run_recorded(
    open_page: Open, workspace: Workspace
) -> None:
    cell = store.read(workspace.root / "first-steps.md").notebook.experiments()[0]
    profile = from_fields({"gradient": "20 ms", "spread": "0.5", "batch": "32", "parameters": "1 MB",
                           "copying": "1 GB/s", "bandwidth": "", "latency": ""})  # fmt: skip
    hashed = config_hash(Experiment.read(cell.config, describe(workspace)))
    QuestionFolder(workspace, PlanRequest(None, hashed, [], [], [], [])).keep_profile(profile)
    timed, untimed = record(workspace, seed=1), record(workspace, seed=2)
    (workspace.jobs / timed.id / names.TIMINGS_JSON).write_text("{}", encoding="utf-8")
    app = open_page("compose", notebook="first-steps", cell=cell.name)
    next(one for one in app.toggle if one.label == "Virtual workers").set_value(True).run()

    def clock() -> Any:
        return config(app)["trainer"]["strategy"]["init_args"]["clock"]

    def times() -> Any:
        return next(one for one in app.selectbox if one.label == "Times")

    planned, run = f"As Plan measured {cell.name}", f"As recorded in {cell.name} · seed 1 ({timed.id[:8]})"
    assert times().options == ["A number", planned, run]
    assert times().value == planned, "nothing is invented where it was measured"
    assert clock()["gradient_s"] == {"kind": "gamma", "mean": 0.02, "cv": 0.5}
    assert clock()["server_s"] == profile_mapping(profile)["server"]
    assert [one.value for one in app.error] == []
    times().set_value(run).run()
    recorded = {"kind": "recorded", "run": timed.id}
    assert clock() == {"gradient_s": recorded, "server_s": recorded}
    times().set_value("A number").run()
    assert clock() == {"gradient_s": 0.1}
    assert any("0.1 s is an example, not a measurement" in one.value for one in app.caption)
    assert untimed.id[:8] not in str(times().options)


def test_one_switch_makes_workers_virtual_and_real_again(open_page: Open) -> None:
    app = open_page("compose", notebook="first-steps")
    pick(app, "Strategy", "Parameter server")
    number(app, "Workers").set_value(64).run()
    next(one for one in app.toggle if one.label == "Virtual workers").set_value(True).run()
    assert any("One process simulates all workers" in one.value for one in app.caption)
    number(app, "Seconds per gradient").set_value("0.25").run()
    trainer = config(app)["trainer"]
    assert trainer["devices"] == 1
    assert trainer["strategy"]["init_args"] | {"rule": None} == {
        "rule": None, "workers": 64, "host": "virtual", "clock": {"gradient_s": 0.25},
    }  # fmt: skip
    assert [one.value for one in app.error] == []
    assert "<span>global batch</span><b>2,048</b>" in html(app)
    number(app, "Seconds per gradient").set_value("-1").run()
    assert any("less than 0" in one.value for one in app.error)
    assert all(off(app))
    assert [one.options for one in app.selectbox if one.label == "Times"] == [["A number"]]
    next(one for one in app.toggle if one.label == "Virtual workers").set_value(False).run()
    trainer = config(app)["trainer"]
    assert trainer["devices"] == 64
    assert {"host", "clock", "workers"}.isdisjoint(trainer["strategy"].get("init_args", {}))


def test_a_dry_run_is_offered_and_its_result_shown(
    open_page: Open, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = [
        DryRunResult(3.21, {"val/loss": 2.5}),
        DryRunResult(1.0, {}, "ValueError at mine.py:7: no", "File mine.py"),
    ]
    begun = []

    def dry_run(experiment: Experiment) -> None:
        begun.append(experiment.strategy.words)
        save(dry_runs.kept_at(experiment), results[len(begun) - 1])

    monkeypatch.setattr(dry_runs, "dry_run", dry_run)
    app = open_page("compose", notebook="first-steps", cell="pixelcnn-async-2")
    app.button(key="compose-dry-run").click().run()
    run_until(app, lambda: bool(app.success))
    said = app.success[0].value
    assert "one batch of training in 2 worker processes" in said
    assert "It logged val/loss 2.5. No run was recorded." in said
    assert list(workspace.jobs.iterdir()) == []
    number(app, "Learning rate").set_value(0.5).run()
    assert not app.success, "that was another config"
    app.button(key="compose-dry-run").click().run()
    run_until(app, lambda: bool(app.error))
    assert "Dry run failed.** ValueError at mine.py:7: no." in app.error[0].value
    assert "File mine.py" in codes(app)
    assert len(begun) == 2
    number(app, "Epochs").set_value("x").run()
    assert app.button(key="compose-dry-run").disabled
    number(app, "Epochs").set_value("1").run()
    number(app, "Nodes").set_value("2").run()
    assert "compose-dry-run" not in [one.key for one in app.button], "this page has one node"
