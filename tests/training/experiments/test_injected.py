"""Arguments that take a module, or a call that makes an optimizer, as Lightning's documentation has them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files import yaml
from scalebook.training.base.trust import trust
from scalebook.training.base.workspace import Workspace
from scalebook.training.cli import describe_command as describing
from scalebook.training.experiments.catalogue import describe
from scalebook.training.experiments.command_line import parse
from scalebook.training.experiments.description import ClassInfo, Description, Field
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.fields import check_args
from scalebook.training.experiments.validation import validate
from tests.shared_files import Prepared
from tests.training.describing import fork_descriptions, forked
from tests.training.injections import MODULE, NAME, path

pytestmark = pytest.mark.long
Config = dict[str, Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, prepared: Prepared) -> Iterator[Workspace]:
    """With the module, described once for all of these tests."""
    root = tmp_path_factory.mktemp("injections")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCALEBOOK_WORKSPACE", str(root))
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        fork_descriptions(patch)
        workspace = prepared.into(Workspace(root))
        (root / f"{NAME}.py").write_text(MODULE, encoding="utf-8")
        (root / "scalebook.toml").write_text(f'modules = ["{NAME}"]\n', encoding="utf-8")
        trust(workspace)
        yield workspace


@pytest.fixture(scope="module")
def told(folder: Workspace) -> Description:
    return describe(folder)


def model(told: Description, name: str) -> ClassInfo:
    found = told.find("models", path(name))
    assert found is not None
    return found


def arguments(told: Description, name: str) -> dict[str, Field]:
    return {field.name: field for field in model(told, name).fields}


def net(**more: Any) -> Config:
    inner = {"class_path": path("Narrow"), "init_args": {"width": 4}}
    return {"class_path": path("Scaled"), "init_args": {"inner": inner, **more}}


def config(**init_args: Any) -> Config:
    return {
        "model": {"class_path": path("WithNet"), "init_args": init_args},
        "data": {"class_path": "Digits", "init_args": {"batch_size": 256}},
        "trainer": {"max_epochs": 1, "accelerator": "cpu"},
    }


def test_what_each_argument_takes(told: Description) -> None:
    found = {name: (one.type, one.group, one.nullable) for name, one in arguments(told, "WithNet").items()}
    assert found == {
        "net": ("class", "modules", False),
        "optimizer": ("class", "optimizers", False),
        "scheduler": ("class", "lr_schedulers", True),
    }
    found = {name: (one.type, one.group, one.nullable) for name, one in arguments(told, "WithAll").items()}
    assert found == {
        "net": ("class", "modules", False), "nets": ("list", "modules", False), "named": ("json", "modules", False),
        "some": ("json", "modules", True), "loss": ("class", "modules", False), "made": ("class", "modules", False),
        "activation": ("class", "modules", False), "sized": ("class", "modules", True),
        "anything": ("class", "modules", False), "several": ("list", "optimizers", False),
        "schedules": ("json", "lr_schedulers", True), "constant": ("class", "lr_schedulers", False),
        "either": ("class", "lr_schedulers", False), "maybe": ("class", "optimizers", True),
        "unread": ("class", "lr_schedulers", False),
        "function": ("json", None, False), "kind": ("str", None, False), "metric": ("json", None, True),
        "unknown": ("json", None, True),
    }  # fmt: skip


def test_defaults_are_said_as_a_config_would(told: Description) -> None:
    """So that `complete` writes them out; what no config can say is left out of it."""
    sgd = {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.5}}
    assert arguments(told, "WithNet")["optimizer"].default == sgd
    defaults = {name: one.default for name, one in arguments(told, "WithAll").items() if one.default is not None}
    assert defaults == {
        "nets": [], "named": {}, "several": [], "loss": {"class_path": "torch.nn.CrossEntropyLoss"},
        "activation": {"class_path": "torch.nn.ReLU"}, "anything": {"class_path": "torch.nn.ReLU"},
        "constant": {"class_path": "torch.optim.lr_scheduler.ConstantLR"},
        "either": {"class_path": "lightning.pytorch.cli.ReduceLROnPlateau", "init_args": {"monitor": "val/loss"}},
        "function": "torch.nn.functional.mse_loss", "kind": "torch.nn.modules.activation.GELU",
    }  # fmt: skip


def test_which_classes_may_be_named(told: Description) -> None:
    """Of the folder's modules and of torch.nn; where the annotation is narrower, only what fits it; without what the
    code passes that calls it."""
    names = [one.name for one in arguments(told, "WithNet")["net"].classes]
    assert names[:2] == ["Narrow", "Scaled"]
    assert {"Linear", "ReLU", "TransformerEncoderLayer"} <= set(names)
    assert not {"Sequential", "Module", "Unclear", "LightningModule", "MulticlassAccuracy"} & set(names)
    assert [one.name for one in arguments(told, "WithAll")["net"].classes] == ["Narrow"]
    sized = arguments(told, "WithAll")["sized"].option("torch.nn.Linear")
    plain = arguments(told, "WithAll")["activation"].option("torch.nn.Linear")
    assert sized is not None
    assert plain is not None
    assert [one.name for one in plain.fields][:2] == ["in_features", "out_features"]
    assert [one.name for one in sized.fields][:1] == ["out_features"]
    inner = next(one for one in told.modules if one.name == "Scaled").fields[0]
    assert inner.option("Narrow") is not None, "a net of a net"


def test_a_description_with_them_is_the_same_when_read_back(told: Description) -> None:
    again = Description.from_json(told.to_json())
    assert again.models == told.models
    assert again.modules == told.modules
    assert len(again.to_json()) == len(told.to_json())


def test_no_module_is_described_where_none_is_asked_for(description: Description) -> None:
    assert description.modules == []
    assert not any(refused.by_mistake for refused in description.refused)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"net": net()}, None),
        ({"net": net(), "scheduler": None}, None),
        ({"net": "torch.nn.Identity"}, None),
        ({"net": "torchvision.models.ResNet"}, None),
        ({"net": net(), "optimizer": {"class_path": "torch.optim.LBFGS"}}, None),
        ({"net": net(), "scheduler": {"class_path": "StepLR", "init_args": {"step_size": 1}}}, None),
        ({}, "net: is missing. Use one of Narrow, Scaled, "),
        ({"net": net(facto=1)}, "net.init_args.facto: is not an argument. Did you mean `factor`?"),
        ({"net": net(factor="x")}, "net.init_args.factor: 'x' is not a number. Use a number."),
        ({"net": net(inner=3)}, "net.init_args.inner: is 3, not a class. Use one of Narrow, "),
        ({"net": "torch.nn.Linaer"}, "net: unknown class 'torch.nn.Linaer'. Did you mean `Linear`?"),
        ({"net": {"class_path": path("Narow")}}, "Did you mean `Narrow`?"),
        ({"net": path("Unclear")}, ("which has an argument without a type: width. Annotate the argument, for example "
                                    "`width: int`, or")),
        ({"net": net(), "scheduler": "StepLR"}, "scheduler.init_args.step_size: is missing. Use a whole number of"),
        ({"net": net(), "optimizer": None}, "optimizer: is empty. Use one of SGD, "),
        ({"net": net(), "optimizer": "LBFGS"}, "'LBFGS'. Known: ASGD, "),
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_wrong_is_said_by_key(told: Description, changes: Config, said: str | None) -> None:
    problems = [str(one) for one in validate(Experiment.read(config(**changes), told)) if one.severity == "error"]
    assert [said in one for one in problems] == [True] if said else problems == [], problems


def test_classes_within_lists_and_mappings_are_checked(told: Description) -> None:
    fields = [one for one in model(told, "WithAll").fields if one.name != "net"]
    right: Config = {"nets": [net(), "torch.nn.ReLU"], "named": {"a": net()}, "some": 3}
    assert check_args("model", right, fields) == []
    wrong: Config = {
        "nets": [net(facto=2)], "named": {"a": {"class_path": "torch.nn.Linaer"}}, "several": {"a": 1},
        "some": net(facto=2),
    }  # fmt: skip
    assert [str(one).partition(". ")[0] for one in check_args("model", wrong, fields)] == [
        "model.nets.0.init_args.facto: is not an argument",
        "model.named.a: unknown class 'torch.nn.Linaer'",
        "model.several: {'a': 1} is not a list",
        "model.some.init_args.facto: is not an argument",
    ]


def test_a_class_that_cannot_be_offered_is_said_with_its_reason(told: Description) -> None:
    for name in ("Untyped", path("Untyped")):
        (problem,) = validate(Experiment.read({**config(), "model": name}, told))
        assert str(problem) == (
            f"model: names '{name}', which has an argument without a type: width. Annotate the argument, for example "
            "`width: int`, or add a default."
        )
    (problem,) = validate(Experiment.read({**config(), "model": path("Trained")}, told))
    assert "which is abstract, because it does not define net_of" in str(problem)
    (problem,) = validate(Experiment.read({**config(), "model": path("WithNt")}, told))
    assert str(problem).endswith("WithNt' in the modules of scalebook.toml. Did you mean `WithNet`?")
    assert [one.class_path for one in told.refused if one.by_mistake] == [path("Untyped"), path("Unclear")]


@pytest.mark.thorough
def test_describe_says_it_too(folder: Workspace) -> None:
    said = forked("describe", path("Untyped"))
    assert said.returncode == 2
    assert "has an argument without a type: width. Annotate it" in said.stderr


def test_metrics_are_those_that_the_source_logs(told: Description) -> None:
    assert model(told, "WithNet").metrics == ["val/loss", "val/accuracy"]


def test_the_command_line_reaches_below_a_net_of_a_net(told: Description, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(yaml.dump(config(net=net())), encoding="utf-8")
    words = ["-c", str(file), "--model.net.inner.width", "6", "--model.net.factor=2.0", "--model.optimizer.lr", "0.1"]
    said = parse(words, told, {}).config["model"]["init_args"]
    assert said["net"] == net(factor=2.0, inner={"class_path": path("Narrow"), "init_args": {"width": 6}})
    assert said["optimizer"] == {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.1}}
    done = Experiment(config(net="Narrow"), told).to_run()["model"]["init_args"]
    assert done["net"] == {"class_path": path("Narrow"), "init_args": {"width": 8}}
    assert done["optimizer"]["init_args"]["lr"] == 0.5


@pytest.mark.parametrize(
    "changes",
    [
        {"net": net(factor=2.0), "scheduler": {"class_path": "StepLR", "init_args": {"step_size": 1}}},
        {"net": "Narrow", "optimizer": "Adam"},
    ],
    ids=["nested", "by_name"],
)
def test_a_model_is_built_of_its_parts_and_trains(folder: Workspace, told: Description, changes: Config) -> None:
    file = folder.root / "x.yaml"
    file.write_text(yaml.dump(config(**changes)), encoding="utf-8")
    said = forked("fit", "-c", str(file))
    assert said.returncode == 0, said.stderr
    job = max((folder.hidden / "jobs").iterdir(), key=lambda one: one.stat().st_mtime)
    progress = json.loads((job / "progress.json").read_text())
    assert {"val/loss", "val/accuracy"} <= set(progress["metrics"])
    kept = torch.load(job / "checkpoints" / "last.ckpt", weights_only=True)["hyper_parameters"]
    assert kept["optimizer"]["class_path"] == "torch.optim." + ("SGD" if "scheduler" in changes else "Adam")
    said = forked("validate", "--run", job.name)
    assert said.returncode == 0, said.stderr


def test_all_defaults_written_out_are_accepted(folder: Workspace, told: Description) -> None:
    """Each construct of Lightning's documentation is one that the parser reads as it is recorded."""
    wanted = {**config(net="Narrow", nets=["Narrow"], named={"a": net()}, some=net(), several=["Adam"])}
    wanted["model"]["class_path"] = path("WithAll")
    wanted["model"]["init_args"]["schedules"] = {"a": {"class_path": "StepLR", "init_args": {"step_size": 1}}}
    wanted["model"]["init_args"]["sized"] = {"class_path": "torch.nn.Linear", "init_args": {"out_features": 3}}
    file = folder.root / "all.yaml"
    file.write_text(yaml.dump(wanted), encoding="utf-8")
    said = forked("fit", "-c", str(file))
    assert said.returncode == 0, said.stderr


def test_a_folder_that_waits_for_trust_says_so(workspace: Workspace) -> None:
    (workspace.root / f"{NAME}.py").write_text(MODULE, encoding="utf-8")
    (workspace.root / "scalebook.toml").write_text(f'modules = ["{NAME}"]\n', encoding="utf-8")
    for name in (path("WithNet"), "WithNet"):
        with pytest.raises(ConfigError) as error:
            describing.main([name])
        assert str(error.value) == (
            f"{name}: is not a known class, but these modules in scalebook.toml are not trusted yet: {NAME}. Read "
            "these modules, then run the command once with --trust."
        )
