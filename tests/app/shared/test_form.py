import copy
from dataclasses import replace
from typing import Any

import pytest

from scalebook.app.shared import form
from scalebook.app.shared.form import Budget
from scalebook.training.experiments.description import ClassInfo, Description, Field, Group
from scalebook.training.experiments.experiment import Experiment, seeds_from
from scalebook.training.experiments.validation import validate
from tests.app.described import description
from tests.app.recorded import config

DESCRIPTION = description()


def info(group: Group, name: str) -> ClassInfo:
    found = DESCRIPTION.find(group, name)
    assert found is not None
    return found


OWN = [ClassInfo(f"lab.{name}.{name.title()}", name.title(), source="user") for name in ("images", "texts")]
DATA = [ClassInfo(f"lab.{path}", path.rpartition(".")[2], source="user") for path in ("images.Shapes", "words.Words")]


@pytest.fixture
def lab() -> Description:
    """A package of the user's: two models, one of which has its data in its own file."""
    return replace(DESCRIPTION, models=[*DESCRIPTION.models, *OWN], data=[*DESCRIPTION.data, *DATA])


def experiment_on(model: str, data: str, **more: Any) -> form.Config:
    return {"model": {"class_path": model}, "data": {"class_path": data, "init_args": {"batch_size": 8}}, **more}


def test_a_new_experiment_begins_with_the_classes_that_the_notebook_uses(lab: Description) -> None:
    shipped = experiment_on("scalebook.training.zoo.models.PixelCNN", "scalebook.training.zoo.data.Digits")
    adam = {"class_path": "torch.optim.Adam", "init_args": {"lr": 0.3}}
    own = experiment_on("lab.texts.Texts", "lab.words.Words", optimizer=adam, trainer={"devices": 4})
    blank = form.blank(lab, [own, shipped])
    assert (blank["model"], blank["data"], blank["optimizer"]) == (own["model"], own["data"], adam)
    assert blank["trainer"]["devices"] == 1
    assert blank["data"] is not own["data"]
    assert form.blank(lab, [shipped])["model"] == shipped["model"]


def test_the_first_experiment_of_a_notebook_begins_with_the_users_model(lab: Description) -> None:
    blank = form.blank(lab)
    assert (blank["model"]["class_path"], blank["data"]["class_path"]) == ("lab.images.Images", "lab.images.Shapes")
    assert form.blank(DESCRIPTION)["model"]["class_path"] == "my.models.Own", "also without data of one's own"


def test_the_data_of_a_model_is_what_it_was_used_with_or_lies_beside_it(lab: Description) -> None:
    images, texts = OWN
    shapes, words = DATA
    assert form.data_for(images, [], lab) == shapes
    assert form.data_for(texts, [], lab) is None, "two of its package, and neither of its file"
    assert form.data_for(texts, [], replace(lab, data=[*DESCRIPTION.data, words])) == words
    assert form.data_for(texts, [experiment_on("lab.texts.Texts", "lab.words.Words")], lab) == words
    used = [experiment_on("lab.images.Images", "lab.words.Words")]
    assert form.data_for(images, used, lab) == words
    assert form.data_for(DESCRIPTION.models[0], [], lab) is None


def test_a_blank_form_is_a_valid_config() -> None:
    shipped = [model for model in DESCRIPTION.models if model.source != "user"]
    blank = form.blank(replace(DESCRIPTION, models=shipped))
    assert validate(Experiment.read(blank, DESCRIPTION)) == []
    assert blank["data"]["init_args"]["batch_size"] == 64
    assert blank["optimizer"] == DESCRIPTION.default_optimizer
    assert blank["optimizer"] is not DESCRIPTION.default_optimizer


def test_another_class_drops_the_arguments_of_the_one_before() -> None:
    wanted = config()
    wanted["model"]["init_args"] = {"features": 8}
    form.ConfigDraft(wanted).choose("model", info("models", "PixelCNN"), "models", DESCRIPTION)
    assert wanted["model"]["init_args"] == {"features": 8}
    form.ConfigDraft(wanted).choose("model", info("models", "Own"), "models", DESCRIPTION)
    assert wanted["model"] == {"class_path": "my.models.Own"}
    form.ConfigDraft(wanted).choose("trainer.strategy", info("strategies", "ddp"), "strategies", DESCRIPTION)
    assert wanted["trainer"]["strategy"] == "ddp"


def test_what_equals_the_default_is_left_out_unless_a_reader_wants_to_see_it() -> None:
    wanted = config()
    features, batch = info("models", "PixelCNN").fields[0], info("data", "Digits").fields[0]
    form.ConfigDraft(wanted).assign("model.init_args.features", features, 32)
    assert wanted["model"]["init_args"] == {"features": 32}
    form.ConfigDraft(wanted).assign("model.init_args.features", features, 16)
    assert "init_args" not in wanted["model"]
    form.ConfigDraft(wanted).assign("data.init_args.batch_size", batch, 64)
    assert wanted["data"]["init_args"] == {"batch_size": 64}


@pytest.mark.parametrize(("default", "value", "kept"), [(0.0, 0, False), (1, True, True), (True, True, False)])
def test_numbers_are_equal_across_types_and_true_is_no_number(default: object, value: object, kept: bool) -> None:
    wanted: form.Config = {}
    form.ConfigDraft(wanted).assign("trainer.x", Field("x", "json", default=default), value)
    assert ("x" in wanted.get("trainer", {})) is kept


def test_the_suggested_name_tells_rules_apart() -> None:
    assert form.ConfigDraft(config(2)).suggested_name(DESCRIPTION) == "pixelcnn-asyncps-x2"
    bounded = {"class_path": "AsyncPS", "init_args": {"rule": "bounded"}}
    assert form.ConfigDraft(config(3, bounded)).suggested_name(DESCRIPTION) == "pixelcnn-bounded-x3"


def test_keys_the_form_does_not_know_survive() -> None:
    wanted = config()
    wanted["ckpt_path"] = "a.ckpt"
    wanted["trainer"]["callbacks"] = [{"class_path": "mine.Callback"}]
    form.ConfigDraft(wanted).assign_budget(Budget("updates", 500))
    form.ConfigDraft(wanted).assign_workers(4)
    assert wanted["ckpt_path"] == "a.ckpt"
    assert wanted["trainer"] == {
        "strategy": config()["trainer"]["strategy"],
        "devices": 4,
        "callbacks": [{"class_path": "mine.Callback"}],
        "max_steps": 500,
    }


def test_workers_go_where_the_config_has_them() -> None:
    wanted = copy.deepcopy(config())
    wanted["trainer"]["strategy"]["init_args"]["workers"] = 3
    form.ConfigDraft(wanted).assign_workers(5)
    assert wanted["trainer"]["strategy"]["init_args"]["workers"] == 5
    assert wanted["trainer"]["devices"] == 2


def test_a_range_of_workers_follows_workers_and_machines() -> None:
    server, wanted = info("strategies", "AsyncPS"), copy.deepcopy(config())
    assert not form.ConfigDraft(wanted).may_range(server)
    assert not form.ConfigDraft(form.blank(DESCRIPTION)).may_range(info("strategies", "ddp"))
    form.ConfigDraft(wanted).put("trainer.num_nodes", 3)
    form.ConfigDraft(wanted).put(form.WORKERS, 4)  # on each
    assert form.ConfigDraft(wanted).may_range(server)
    assert not form.ConfigDraft(wanted).may_range(info("strategies", "ddp"))
    form.ConfigDraft(wanted).assign_fewest(None, DESCRIPTION)
    assert form.ConfigDraft(wanted).get(form.WORKERS) == 4
    form.ConfigDraft(wanted).assign_fewest(2, DESCRIPTION)
    assert form.ConfigDraft(wanted).get(form.WORKERS) == {"min": 2, "max": 12}
    assert wanted["trainer"]["devices"] == 4
    form.ConfigDraft(wanted).assign_workers(5)
    form.ConfigDraft(wanted).put("trainer.num_nodes", 2)
    form.ConfigDraft(wanted).assign_fewest(2, DESCRIPTION)
    assert form.ConfigDraft(wanted).get(form.WORKERS) == {"min": 2, "max": 10}
    form.ConfigDraft(wanted).drop("trainer.num_nodes")
    assert form.ConfigDraft(wanted).may_range(server), "so that it can be emptied"
    form.ConfigDraft(wanted).assign_fewest(None, DESCRIPTION)
    assert form.ConfigDraft(wanted).get(form.WORKERS) is None
    assert wanted["trainer"]["devices"] == 5


@pytest.mark.parametrize(
    "budget", [Budget("epochs", 7), Budget("updates", 1200), Budget("time", 90.5), Budget("time", 60 * 24 * 3)]
)
def test_a_budget_comes_back_as_it_was_written(budget: Budget) -> None:
    wanted = config()
    form.ConfigDraft(wanted).assign_budget(budget)
    assert form.ConfigDraft(wanted).budget() == budget
    assert sum(key in wanted["trainer"] for key in form.BUDGET_KEYS.values()) == 1


def test_time_is_written_as_lightning_reads_it() -> None:
    wanted = config()
    form.ConfigDraft(wanted).assign_budget(Budget("time", 90.5))
    assert wanted["trainer"]["max_time"] == "00:01:30:30"
    assert form.ConfigDraft({"trainer": {"max_time": {"hours": 1, "minutes": 30}}}).budget() == Budget("time", 90)


def test_names_say_model_strategy_and_workers() -> None:
    assert form.ConfigDraft(config(4)).suggested_name(DESCRIPTION) == "pixelcnn-asyncps-x4"
    assert form.ConfigDraft(config(1, "auto")).suggested_name(DESCRIPTION) == "pixelcnn-single"


def test_seeds_go_upwards_from_the_configs_own() -> None:
    assert seeds_from(7, 3) == [7, 8, 9]
    assert seeds_from(None, 1) == [1]
    assert seeds_from(True, 2) == [1, 2]
