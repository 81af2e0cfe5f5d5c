"""A class path of ours means the class with its last name, wherever the path says that it is."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from scalebook.training.base.files import yaml
from scalebook.training.cli.lightning_cli import PlainCheckpoints, TrainingCLI
from scalebook.training.cli.model_making import parameters
from scalebook.training.engine.rules.update_rules import Bounded, Rule, RuleName
from scalebook.training.experiments.confinement import Confinement
from scalebook.training.experiments.description import GROUPS, Description, Field
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.identity import base_content, config_hash
from scalebook.training.experiments.known_classes import CLASSES, OURS, KnownClass, paths_hashed, paths_today
from scalebook.training.experiments.search.definition import read_search
from scalebook.training.experiments.search.point import resolve
from scalebook.training.experiments.validation import require
from scalebook.training.jobs.job_folder import JobFolder
from scalebook.training.lightning.arguments import read_object

OUR_CLASSES = [entry for entry in CLASSES if entry.path.startswith(OURS)]
WRITTEN: dict[str, Any] = {
    "model": {"class_path": "scalebook.training.{}.MLPClassifier", "init_args": {"hidden": 16}},
    "data": {"class_path": "scalebook.training.{}.Digits"},
    "optimizer": {"class_path": "scalebook.training.{}.LARS", "init_args": {"lr": 0.1}},
    "trainer": {
        "devices": 2,
        "strategy": {
            "class_path": "scalebook.training.{}.AsyncPS",
            "init_args": {
                "rule": {"class_path": "scalebook.training.{}.Bounded", "init_args": {"bound": 3}},
                "damping": {"class_path": "scalebook.training.{}.DropAbove", "init_args": {"limit": 2}},
            },
        },
        "callbacks": [{"class_path": "scalebook.training.{}.RateRange"}],
    },
}


def below(folder: str, value: Any = WRITTEN) -> Any:
    """WRITTEN, with every class of ours in this folder."""
    if isinstance(value, dict):
        return {key: below(folder, item) for key, item in value.items()}
    if isinstance(value, list):
        return [below(folder, item) for item in value]
    return value.replace("{}", folder) if isinstance(value, str) else value


@pytest.mark.parametrize("entry", CLASSES, ids=lambda entry: entry.path)
def test_every_class_is_where_its_entry_says(entry: KnownClass) -> None:
    kind = getattr(import_module(entry.path.removesuffix(f".{entry.name}")), entry.name)
    assert (kind.__name__, Confinement({"trainer": {"callbacks": [entry.path]}}).class_problems()) == (entry.name, [])


def test_short_names_of_ours_are_unique() -> None:
    assert len({entry.name for entry in OUR_CLASSES}) == len(OUR_CLASSES)


def test_every_class_of_ours_that_is_described_has_an_entry(description: Description) -> None:
    def paths(fields: list[Field]) -> set[str]:
        options = [option for field in fields for option in field.options]
        return {option.class_path for option in options}.union(*(paths(option.fields) for option in options))

    described = [info for group in GROUPS for info in getattr(description, group)]
    found = {info.class_path for info in described}.union(*(paths(info.fields) for info in described))
    assert {path for path in found if path.startswith(OURS)} - {entry.path for entry in OUR_CLASSES} == set()


@pytest.mark.parametrize("folder", ["strategies", "zoo.models.classifiers", "nowhere.at_all"])
def test_a_path_is_resolved_by_its_last_name(folder: str, description: Description) -> None:
    written, today = below(folder), paths_today(below(folder))
    require(Experiment.read(written, description))
    assert (
        Experiment(written, description).to_run()["model"]["class_path"]
        == "scalebook.training.zoo.models.MLPClassifier"
    )
    done, as_today = Experiment(written, description).to_run(), Experiment(today, description).to_run()
    assert {**done, "trainer": {**done["trainer"], "callbacks": None}} == {
        **as_today,
        "trainer": {**as_today["trainer"], "callbacks": None},
    }
    assert paths_today(done) == as_today
    assert Confinement(written).class_problems() == []
    assert config_hash(Experiment.read(written, description)) == config_hash(Experiment.read(today, description))
    assert base_content(Experiment.read(written, description)) == base_content(Experiment.read(today, description))


def test_a_job_is_read_with_the_paths_of_today(tmp_path: Path) -> None:
    job = JobFolder(tmp_path)
    job.config.write_text(yaml.dump(below("models")), encoding="utf-8")
    assert job.content() == paths_today(below("x"))
    assert job.content()["trainer"]["callbacks"][0] == {
        "class_path": "scalebook.training.planner.tuning.rate_range.RateRange"
    }
    assert yaml.load(job.config.read_text(encoding="utf-8")) == below("models"), "signed, and left as it is"


@pytest.mark.parametrize(
    "text",
    [
        "torch.optim.SGD", "mine.scalebook.training.AsyncPS", "PixelCNN", "scalebook.training.models. Read it.",
        "scalebook.training.models", "scalebook..AsyncPS", "scalebook.training.cli.lightning_cli.ModelPruning",
        "scalebook.training.zoo.models.MLPClassifier.load_from_checkpoint",
    ],
)  # fmt: skip
def test_any_other_text_stays(text: str) -> None:
    assert paths_today({"a": [text, {"class_path": text}]}) == {"a": [text, {"class_path": text}]}


def test_hashes_do_not_depend_on_where_a_class_is() -> None:
    for entry in OUR_CLASSES:
        hashes = {paths_hashed({"class_path": f"{OURS}{folder}.{entry.name}"})["class_path"] for folder in ("a", "b.c")}
        assert hashes == {entry.path_in_hashes}
    assert paths_hashed({"class_path": "scalebook.new.Strange"}) == {"class_path": "Strange"}
    assert paths_hashed({"class_path": "trainings.models.A"}) == {"class_path": "trainings.models.A"}


def test_hashes_of_version_0_1_stay(description: Description) -> None:
    trainer = {key: item for key, item in below("lightning")["trainer"].items() if key != "callbacks"}
    assert config_hash(Experiment.read({"trainer": trainer}, description)) == "1893459cb045"


def test_the_trials_of_a_search_of_version_0_1(description: Description) -> None:
    base = {
        "model": {"class_path": "scalebook.training.models.MLPClassifier"},
        "data": {"class_path": "scalebook.training.data.Digits"},
        "optimizer": {"class_path": "SGD", "init_args": {"lr": 0.1}},
    }
    peers: dict[str, Any] = {"class_path": "scalebook.training.strategies.Peers", "init_args": {"workers": 2}}
    space: dict[str, Any] = {"strategy": {"values": ["single", peers]}, "workers": {"grid": [2, 4]}}
    spec = read_search({"config": base, "objective": "val/loss", "space": space}, None, description)
    assert spec.dimension("strategy").choices == ("single", peers), "the study has them by these names"
    config = resolve(spec, {"strategy": peers, "workers": 4}).written
    require(Experiment.read(config, description))
    done = Experiment(config, description).to_run()
    assert done["trainer"]["strategy"]["class_path"] == "scalebook.training.lightning.Peers"
    assert (done["trainer"]["strategy"]["init_args"]["workers"], done["model"]["class_path"]) == (
        4, "scalebook.training.zoo.models.MLPClassifier"
    )  # fmt: skip


def test_a_script_the_parser_and_a_checkpoint_meet_the_class_of_today(tmp_path: Path) -> None:
    rule: Any = {"class_path": "scalebook.training.ps.policy.rules.Bounded", "init_args": {"bound": 3}}
    made = read_object(rule, RuleName | Rule, "rule")
    assert isinstance(made, Bounded)
    assert made.bound == 3
    model = below("models")["model"]
    found = parameters({"model": model, "data": below("anywhere")["data"]})
    assert (found.problem, bool(found.parameters)) == ("", True)
    TrainingCLI("fit", {**below("before"), "trainer": {"accelerator": "cpu"}}, None, run=False)
    path = tmp_path / "last.ckpt"
    torch.save({"state_dict": {}, "hyper_parameters": {"inner": model, "text": "as it is"}}, path)
    kept = PlainCheckpoints().load_checkpoint(path)["hyper_parameters"]
    assert kept == {"inner": paths_today(model), "text": "as it is"}
