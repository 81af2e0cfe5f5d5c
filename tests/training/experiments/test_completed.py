import os
import random
from dataclasses import replace
from typing import Any

import pytest
import torch

from scalebook.training.base.errors import ConfigError
from scalebook.training.cli.lightning_cli import TrainingCLI
from scalebook.training.engine.rules.codecs import TopK
from scalebook.training.engine.rules.damping import DropAbove
from scalebook.training.engine.rules.update_rules import Bounded
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.validation import validate

CONFIGS: list[dict[str, Any]] = [
    {"model": "PixelCNN", "data": "Digits"},
    {"model": "MLPClassifier", "data": "Messages", "trainer": {"strategy": "ddp", "devices": 2}, "threads": 2},
    {
        "model": {"class_path": "ConvClassifier", "init_args": {}},
        "data": {"class_path": "Digits", "init_args": {"batch_size": 8}},
        "trainer": {"strategy": {"class_path": "AsyncPS", "init_args": {"workers": 3}}, "max_steps": 10},
        "optimizer": {"class_path": "SGD", "init_args": {"lr": 0.1}},
        "lr_scheduler": {"class_path": "CosineAnnealingLR", "init_args": {"T_max": 5}},
    },
    {
        "model": "MLPClassifier",
        "data": "Digits",
        "trainer": {
            "devices": 2,
            "strategy": {
                "class_path": "AsyncPS",
                "init_args": {"rule": {"class_path": "Bounded", "init_args": {"bound": 3}}, "damping": "inverse"},
            },
        },
    },
]


@pytest.mark.parametrize("config", CONFIGS)
def test_completing_twice_changes_nothing_and_the_result_is_valid(
    config: dict[str, Any], description: Description
) -> None:
    done = Experiment(config, description).to_run()
    assert Experiment(done, description).to_run() == done
    assert validate(Experiment.read(done, description)) == []


@pytest.mark.parametrize("config", CONFIGS)
def test_lightning_parses_what_is_complete(config: dict[str, Any], description: Description) -> None:
    done = Experiment(config, description).to_run()
    parsed = TrainingCLI("fit", done, None, run=False).config["fit"].as_dict()
    assert parsed["model"]["class_path"] == done["model"]["class_path"]
    assert parsed["threads"] == done["threads"]
    assert parsed["trainer"]["max_epochs"] == done["trainer"].get("max_epochs")


def test_ddp_is_one_word_unless_gradients_travel_in_another_way(description: Description) -> None:
    def strategy(codec: Any) -> Any:
        written = {"class_path": "scalebook.training.lightning.DDP", "init_args": {"codec": codec}}
        given = {**CONFIGS[1], "trainer": {"strategy": written, "devices": 2}}
        done = Experiment(given, description).to_run()
        assert validate(Experiment.read(given, description)) == validate(Experiment.read(done, description)) == []
        return done["trainer"]["strategy"]

    assert strategy("fp32") == strategy({"class_path": "Fp32", "init_args": {"zstd": 0}}) == "ddp"
    written = strategy({"class_path": "TopK", "init_args": {"share": 0.1}})
    assert written["init_args"]["codec"]["init_args"] == {"share": 0.1, "error_feedback": True, "zstd": 0}
    done = {**Experiment(CONFIGS[1], description).to_run(), "trainer": {"strategy": written, "devices": 2}}
    cli = TrainingCLI("fit", done, None, run=False)
    assert cli.parser.instantiate(cli.config)["fit"]["trainer"]["strategy"].codec == TopK(share=0.1)


@pytest.mark.parametrize("rule", ["bounded", "Bounded", {"class_path": "Bounded", "init_args": {"bound": 4}}])
def test_the_rule_that_runs_is_the_one_that_is_written(rule: Any, description: Description) -> None:
    strategy = {"class_path": "AsyncPS", "init_args": {"rule": rule, "damping": "drop_above"}}
    done = Experiment({**CONFIGS[0], "trainer": {"strategy": strategy, "devices": 2}}, description).to_run()
    cli = TrainingCLI("fit", done, None, run=False)
    made = cli.parser.instantiate(cli.config)["fit"]["trainer"]["strategy"]
    assert made.arguments.server.rule == Bounded(4)
    assert made.arguments.server.damping == DropAbove(8)


def test_a_parser_that_is_kept_says_what_a_new_one_says(
    description: Description, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = [Experiment(config, description).to_run() for config in CONFIGS]
    kept, new = [], []
    for config in whole:
        with pytest.raises(ConfigError, match="max_epochs"):
            TrainingCLI("fit", {**config, "trainer": {"max_epochs": "no"}}, None, run=False)
        kept.append(TrainingCLI("fit", config, None, run=False).config["fit"].as_dict())
    for config in whole:
        monkeypatch.setattr("scalebook.training.cli.lightning_cli._PARSERS", {})
        new.append(TrainingCLI("fit", config, None, run=False).config["fit"].as_dict())
    assert kept == new


def test_preparing_touches_neither_chance_nor_threads() -> None:
    before, drawn = torch.get_rng_state(), random.getstate()
    threads, variables = torch.get_num_threads(), dict(os.environ)
    TrainingCLI.prepare()
    assert torch.equal(torch.get_rng_state(), before)
    assert (random.getstate(), torch.get_num_threads(), dict(os.environ)) == (drawn, threads, variables)


def test_everything_that_is_left_open_is_written_out(description: Description) -> None:
    done = Experiment({"model": "PixelCNN", "data": "Digits"}, description).to_run()
    assert done["seed_everything"] == 1
    assert done["threads"] == 1
    assert done["trainer"]["strategy"] == "auto"
    assert done["trainer"]["max_epochs"] == 10
    model = description.find("models", "PixelCNN")
    assert model is not None
    assert done["model"]["class_path"] == "scalebook.training.zoo.models.PixelCNN"
    assert done["model"]["init_args"] == {one.name: one.default for one in model.fields if one.default is not None}
    assert done["model"]["init_args"]["layers"] > 0
    assert done["data"]["init_args"]["batch_size"] == 32
    assert done["optimizer"]["class_path"] == "torch.optim.Adam"


def test_what_is_said_stays(description: Description) -> None:
    done = Experiment(CONFIGS[2], description).to_run()
    assert done["trainer"]["max_steps"] == 10
    assert "max_epochs" not in done["trainer"]
    assert done["optimizer"]["init_args"]["lr"] == 0.1
    assert done["trainer"]["strategy"]["init_args"]["workers"] == 3


def test_several_devices_without_a_strategy_are_ddp(description: Description) -> None:
    assert Experiment({**CONFIGS[0], "trainer": {"devices": 2}}, description).to_run()["trainer"]["strategy"] == "ddp"


def test_a_model_with_its_own_optimizer_keeps_it(description: Description) -> None:
    models = [replace(one, own_optimizer=True) for one in description.models]
    done = Experiment({**CONFIGS[2]}, replace(description, models=models)).to_run()
    assert "optimizer" not in done
    assert "lr_scheduler" not in done
