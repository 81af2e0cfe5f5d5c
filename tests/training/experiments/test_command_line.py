from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import LightningDataModule, LightningModule
from lightning.pytorch.cli import LightningCLI

import scalebook.training.zoo.data
import scalebook.training.zoo.models  # noqa: F401 - the parser finds short names among what is imported
from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files import yaml
from scalebook.training.experiments.command_line import parse
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment

BASE = {
    "trainer": {"max_epochs": 2, "callbacks": [{"class_path": "lightning.pytorch.callbacks.ModelSummary"}]},
    "model": {"class_path": "scalebook.training.zoo.models.MLPClassifier", "init_args": {"hidden": 8, "dropout": 0.5}},
    "data": {"class_path": "scalebook.training.zoo.data.Digits", "init_args": {"batch_size": 16}},
    "optimizer": {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.1, "momentum": 0.5}},
}


class OnlyParsed(LightningCLI):
    """LightningCLI as it is, without making anything of what it parses."""

    def instantiate_classes(self) -> None:
        """Nothing."""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "base.yaml").write_text(yaml.dump(BASE), encoding="utf-8")
    more = {"trainer": {"max_epochs": 5}, "data": {"init_args": {"limit": 10}}}
    (tmp_path / "more.yaml").write_text(yaml.dump(more), encoding="utf-8")
    return tmp_path


def merged(words: str, files: Path, description: Description) -> dict[str, Any]:
    argv = words.replace("BASE", f"{files}/base.yaml").replace("MORE", f"{files}/more.yaml").split()
    return parse(argv, description, {}).config


@pytest.mark.parametrize(
    "words",
    [
        "-c BASE",
        "-c BASE -c MORE",
        "--config BASE --config=MORE --trainer.max_epochs 7",
        "-c BASE --trainer.max_epochs=3 --data.batch_size 64 --model.init_args.hidden=32",
        "-c BASE --model ConvClassifier",
        "-c BASE --model PixelCNN --model.layers 2",
        "-c BASE --optimizer Adam --optimizer.lr 1e-3",
        "-c BASE --trainer.limit_train_batches 0.5 --trainer.gradient_clip_val 1 --seed_everything 5",
        "-c BASE --trainer.callbacks+={class_path:lightning.pytorch.callbacks.RichModelSummary}",
    ],
)
def test_it_means_what_it_means_to_lightning_cli(
    words: str, files: Path, description: Description, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = words.replace("{class_path:", '{"class_path":').replace(
        ":lightning.pytorch.callbacks.RichModelSummary}", ':"lightning.pytorch.callbacks.RichModelSummary"}'
    )
    ours = Experiment(merged(words, files, description), description).to_run()
    argv = words.replace("BASE", f"{files}/base.yaml").replace("MORE", f"{files}/more.yaml").split()
    monkeypatch.setattr("sys.argv", ["scalebook"])
    kwargs: dict[str, Any] = {
        "subclass_mode_model": True,
        "subclass_mode_data": True,
        "run": False,
        "load_from_checkpoint_support": False,
        "seed_everything_default": 1,
    }
    theirs = OnlyParsed(LightningModule, LightningDataModule, args=argv, **kwargs).config.as_dict()
    for key in ("model", "data", "optimizer"):
        assert ours[key]["class_path"] == theirs[key]["class_path"]
        for name, value in ours[key]["init_args"].items():
            found = theirs[key]["init_args"][name]
            assert (list(found) if isinstance(found, tuple) else found) == value, f"{key}.{name}"
    for name in ("max_epochs", "limit_train_batches", "gradient_clip_val"):
        assert ours["trainer"].get(name) == theirs["trainer"][name]
    assert len(ours["trainer"]["callbacks"]) == len(theirs["trainer"]["callbacks"])


def test_an_argument_of_the_optimizer_alone_is_of_the_default_one(description: Description) -> None:
    found = parse(["--optimizer.lr", "0.5"], description, {}).config
    assert found["optimizer"] == {"class_path": "torch.optim.Adam", "init_args": {"lr": 0.5}}


def test_options_of_the_command_are_kept_apart(description: Description) -> None:
    found = parse(
        ["--print_config", "--run", "abc", "--threads=2"], description, {"--print_config": False, "--run": True}
    )
    assert found.options == {"--print_config": None, "--run": "abc"}
    assert found.config == {"threads": 2}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["x.yaml"], "x.yaml: is not an option. Use -c x.yaml for a config, or --key value."),
        (["-c", "/no/such.yaml"], "/no/such.yaml: cannot be read (No such file or directory). Check the path."),
        (["--trainer.max_epochs"], "--trainer.max_epochs: has no value. Use --trainer.max_epochs VALUE."),
        (["--model.hidden", "--data", "x"], "--model.hidden: has no value. Use --model.hidden VALUE."),
        (["-x", "1"], "-x: is not an option. Use -c FILE for a config, or --key value."),
        (["--model", "[1"], "--model: is '[1', which is not YAML. Quote it for the shell."),
    ],
)
def test_a_mistake_names_the_word(argv: list[str], message: str, description: Description) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(argv, description, {})
    assert str(caught.value) == message


def test_a_mistake_in_a_file_names_file_and_line(tmp_path: Path, description: Description) -> None:
    (tmp_path / "x.yaml").write_text("model: PixelCNN\ndata: [\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"x\.yaml, line \d: is not YAML"):
        parse(["-c", str(tmp_path / "x.yaml")], description, {})
    (tmp_path / "y.yaml").write_text("- 1\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"y\.yaml: is not a mapping"):
        parse(["-c", str(tmp_path / "y.yaml")], description, {})


BOUNDED = "scalebook.training.engine.rules.Bounded"


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ("--trainer.strategy.rule bounded", "bounded"),
        ("--trainer.strategy.rule bounded --trainer.strategy.rule.bound 3", {"bound": 3}),
        ("--trainer.strategy.init_args.rule Bounded --trainer.strategy.init_args.rule.init_args.bound=3", {"bound": 3}),
        ("--trainer.strategy.rule {class_path:~Bounded,init_args:~{bound:~3}}", {"bound": 3}),
        ("--trainer.strategy.rule bounded --trainer.strategy.rule.bound 3 --trainer.strategy.rule async", "async"),
    ],
)
def test_the_settings_of_a_rule(words: str, rule: Any, description: Description) -> None:
    argv = ["--trainer.strategy", "AsyncPS", *(word.replace("~", " ") for word in words.split())]
    found = parse(argv, description, {}).config
    written = found["trainer"]["strategy"]["init_args"]["rule"]
    if isinstance(rule, str):
        assert written == rule
    else:
        assert Experiment(found, description).to_run()["trainer"]["strategy"]["init_args"]["rule"] == {
            "class_path": BOUNDED, "init_args": rule,
        }  # fmt: skip


@pytest.mark.parametrize("init_args", ["", "init_args."])
def test_a_path_leaves_what_stands_beside_it(init_args: str, files: Path, description: Description) -> None:
    clock = {"gradient_s": 0.05, "link": {"latency_s": 0.001, "bandwidth": 1e6}}
    strategy = {"class_path": "AsyncPS", "init_args": {"workers": 2, "host": "virtual", "clock": clock}}
    (files / "more.yaml").write_text(yaml.dump({"trainer": {"strategy": strategy}}), encoding="utf-8")
    words = f"-c BASE -c MORE --trainer.strategy.{init_args}clock.link.bandwidth 2.0e+6"
    wanted = {"gradient_s": 0.05, "link": {"latency_s": 0.001, "bandwidth": 2e6}}
    assert merged(words, files, description)["trainer"]["strategy"]["init_args"]["clock"] == wanted
    yaml.dump(merged(f"--trainer.strategy.{init_args}clock.gradient_s 2", files, description))
    whole = merged(f'{words} --trainer.strategy.{init_args}clock={{"gradient_s":1}}', files, description)
    assert whole["trainer"]["strategy"]["init_args"]["clock"] == {"gradient_s": 1}
