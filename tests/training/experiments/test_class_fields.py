"""Fields whose value is one of several classes: how they are named, checked, completed and said in words."""

from typing import Any

import pytest

from scalebook.training.base.errors import Problem
from scalebook.training.engine.rules.damping import make_damping
from scalebook.training.engine.rules.settings import Settings
from scalebook.training.engine.rules.update_rules import make_rule
from scalebook.training.experiments.classes import choose_class, shortest_form
from scalebook.training.experiments.description import ClassInfo, Description, Field
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.validation import validate
from tests.training.engine.refusing import refused

INNER = ClassInfo("my.Inner", "Inner", fields=[Field("depth", "int", default=2, minimum=1)], config_value="inner")
SOME = Field(
    "some",
    "class",
    default="plain",
    choices=["plain", "inner"],
    options=[
        ClassInfo("my.Plain", "Plain", config_value="plain"),
        INNER,
        ClassInfo(
            "my.Outer",
            "Outer",
            fields=[
                Field("weight", "float", required=True),
                Field("inside", "class", default="inner", choices=["inner"], options=[INNER]),
            ],
        ),
    ],
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("inner", ("inner", {"depth": 2}, {})),
        ("Inner", ("inner", {"depth": 2}, {})),
        ({"class_path": "Inner", "init_args": {"depth": 3}}, ("inner", {"depth": 3}, {"depth": 3})),
        ({"class_path": "my.Inner", "init_args": {"depth": 2.0}}, ("inner", {"depth": 2.0}, {})),
        (
            {"class_path": "my.Outer", "init_args": {"weight": 1.0}},
            ("Outer", {"weight": 1.0, "inside": "inner"}, {"weight": 1.0}),
        ),
    ],
)
def test_a_class_is_found_by_any_of_its_names(value: Any, expected: tuple[str, Any, Any]) -> None:
    found = choose_class(value, SOME)
    assert found is not None
    assert (found.word, found.settings(), found.non_defaults()) == expected


@pytest.mark.parametrize("value", [None, 3, "iner", {"class_path": "inner"}, {"class_path": "Inner", "init_args": 3}])
def test_what_names_none_is_none(value: Any) -> None:
    assert choose_class(value, SOME) is None
    assert shortest_form(value, SOME) == value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"class_path": "my.Inner", "init_args": {"depth": 2}}, "inner"),
        ({"class_path": "Inner"}, "inner"),
        ({"class_path": "Inner", "init_args": {"depth": 5}}, {"class_path": "my.Inner", "init_args": {"depth": 5}}),
        ("Outer", {"class_path": "my.Outer"}),
        ({"class_path": "Inner", "note": 1}, {"class_path": "Inner", "note": 1}),
    ],
)
def test_the_shortest_way_to_say_it(value: Any, expected: Any) -> None:
    assert shortest_form(value, SOME) == expected


def config(**args: Any) -> dict[str, Any]:
    return {
        "model": "PixelCNN",
        "data": {"class_path": "Digits", "init_args": {"batch_size": 16}},
        "trainer": {"strategy": {"class_path": "AsyncPS", "init_args": args}, "devices": 4},
    }


BOUND3 = {"class_path": "scalebook.training.engine.rules.Bounded", "init_args": {"bound": 3}}
SUMS = {"class_path": "Downpour", "init_args": {"n_push": 3, "n_fetch": 1}}
BACKUP = {"class_path": "Sync", "init_args": {"backup_workers": 1}}


@pytest.mark.parametrize("rule", ["async", "bounded", "Bounded", "sync", BOUND3, BACKUP, {"class_path": "Softsync"}])
def test_every_way_to_name_a_rule_is_right(rule: Any, description: Description) -> None:
    assert validate(Experiment.read(config(rule=rule), description)) == []


@pytest.mark.parametrize(
    ("rule", "key", "code"),
    [
        ("bounde", "rule", "unknown-class"),
        ("ssp", "rule", "unknown-class"),
        (3, "rule", "wrong-type"),
        (None, "rule", "missing"),
        ({"class_path": "bounded"}, "rule", "unknown-class"),
        ({"class_path": "Bounded", "bound": 3}, "rule.bound", "misplaced-key"),
        ({"class_path": "Bounded", "init_args": 3}, "rule.init_args", "wrong-type"),
        (
            {"class_path": "Bounded", "init_args": {"bond": 3}},
            "rule.init_args.bond",
            "unknown-argument",
        ),
        (
            {"class_path": "scalebook.training.engine.rules.Bounded", "init_args": {"bound": 0}},
            "rule.init_args.bound",
            "out-of-bounds",
        ),
        (
            {"class_path": "Sync", "init_args": {"backup_workers": 4}},
            "rule.init_args.backup_workers",
            "out-of-bounds",
        ),
    ],
)
def test_a_mistake_in_a_rule_is_found(rule: Any, key: str, code: str, description: Description) -> None:
    found = [one for one in validate(Experiment.read(config(rule=rule), description)) if one.severity == "error"]
    assert [(one.key, one.code) for one in found] == [(f"trainer.strategy.init_args.{key}", code)]


@pytest.mark.parametrize(
    ("damping", "key"),
    [
        ({"class_path": "DelayCompensation", "init_args": {"decay": 1.0}}, "decay"),
        ({"class_path": "DelayCompensation", "init_args": {"epsilon": 0.0}}, "epsilon"),
        ({"class_path": "DelayCompensation", "init_args": {"strength": -1.0}}, "strength"),
        ({"class_path": "DropAbove", "init_args": {"limit": -1}}, "limit"),
    ],
)
def test_bounds_that_the_classes_check_are_known_before(damping: Any, key: str, description: Description) -> None:
    (found,) = validate(Experiment.read(config(damping=damping), description))
    assert found.key == f"trainer.strategy.init_args.damping.init_args.{key}"
    assert found.code == "out-of-bounds"


@pytest.mark.parametrize(
    ("codec", "key"),
    [
        ({"class_path": "TopK", "init_args": {"share": 0.0}}, "init_args.share"),
        ({"class_path": "RandomK", "init_args": {"share": 1.1}}, "init_args.share"),
        ({"class_path": "Qsgd", "init_args": {"levels": 128}}, "init_args.levels"),
        ({"class_path": "PowerSgd", "init_args": {"rank": 0}}, "init_args.rank"),
    ],
)
def test_bounds_of_codecs_are_known_before(codec: Any, key: str, description: Description) -> None:
    (found,) = validate(Experiment.read(config(push_codec=codec), description))
    assert found.key == f"trainer.strategy.init_args.push_codec.{key}"
    assert found.code == "out-of-bounds"


@pytest.mark.parametrize(
    ("local", "key"),
    [
        ({"class_path": "LocalSGD", "init_args": {"every": 0}}, "every"),
        ({"class_path": "DiLoCo", "init_args": {"outer_momentum": 1.0}}, "outer_momentum"),
        ({"class_path": "Elastic", "init_args": {"alpha": 1.5}}, "alpha"),
        ({"class_path": "Significance", "init_args": {"share": 0.0}}, "share"),
    ],
)
def test_bounds_of_local_steps_are_known_before(local: Any, key: str, description: Description) -> None:
    (found,) = validate(Experiment.read(config(local=local), description))
    assert found.key == f"trainer.strategy.init_args.local.init_args.{key}"
    assert found.code == "out-of-bounds"


@pytest.mark.parametrize(
    ("args", "key"),
    [
        ({"local": "downpour", "rule": "sync"}, "local"),
        ({"local": "diloco", "host": "overlap"}, "host"),
        ({"local": "elastic", "damping": "delay_compensation"}, "damping"),
    ],
)
def test_what_contradicts_local_steps_is_known_before(args: Any, key: str, description: Description) -> None:
    (found,) = validate(Experiment.read(config(**args), description))
    assert found.key == f"trainer.strategy.init_args.{key}"


@pytest.mark.parametrize("rule", ["bounded", "Bounded", {"class_path": "Bounded"}, BOUND3])
def test_complete_writes_path_and_defaults(rule: Any, description: Description) -> None:
    done = Experiment(config(rule=rule), description).to_run()
    args = done["trainer"]["strategy"]["init_args"]
    assert args["rule"] == {
        "class_path": "scalebook.training.engine.rules.Bounded",
        "init_args": {"bound": 3 if rule == BOUND3 else 4},
    }
    assert args["damping"] == {"class_path": "scalebook.training.engine.rules.NoDamping", "init_args": {}}
    assert Experiment(done, description).to_run() == done
    assert validate(Experiment.read(done, description)) == []


@pytest.mark.parametrize(
    ("args", "words", "effective"),
    [
        ({}, "async", 16),
        ({"rule": BOUND3}, "bounded, bound 3", 16),
        ({"rule": "bounded"}, "bounded, bound 4", 16),
        ({"rule": "sync"}, "sync", 64),
        ({"rule": BACKUP}, "sync, 1 backup", 48),
        ({"rule": {"class_path": "Sync", "init_args": {"backup_workers": 2}}}, "sync, 2 backups", 32),
        ({"rule": "softsync"}, "softsync, average 2", 32),
        ({"local": "downpour"}, "async, Downpour, pushes every 4, fetches every 4", 64),
        ({"local": SUMS}, "async, Downpour, pushes every 3, fetches every 1", 48),
        ({"damping": "inverse", "warmup_updates": 100}, "async, inverse damping, warm-up 100", 16),
        ({"damping": "drop_above"}, "async, drop above 8", 16),
        ({"push_codec": "topk", "warmup_updates": 5}, "async, pushes topk 0.01, warm-up 5", 16),
        ({"pull_codec": "sign"}, "async, pulls sign", 16),
        ({"rule": "sync", "local": "local_sgd"}, "sync, local SGD, every 16", 1024),
        ({"local": {"class_path": "DiLoCo", "init_args": {"every": 8}}}, "async, DiLoCo, every 8", 128),
        ({"local": "elastic", "damping": "inverse"}, "async, elastic averaging, every 10, inverse damping", 160),
        (
            {"local": {"class_path": "Significance", "init_args": {"share": 0.05, "most": 8}}},
            "async, pushes after moving by 0.05 of the norm, most 8",
            128,
        ),
        ({"push_codec": {"class_path": "Bf16", "init_args": {"zstd": 3}}}, "async, pushes bf16, zstd 3", 16),
        (
            {"damping": {"class_path": "DelayCompensation", "init_args": {"strength": 1.0, "adaptive": True}}},
            "async, delay compensation, strength 1, adaptive",
            16,
        ),
    ],
)
def test_a_run_is_told_apart_by_what_matters(args: Any, words: str, effective: int, description: Description) -> None:
    for given in (config(**args), Experiment(config(**args), description).to_run()):
        found = Experiment.read(given, description)
        assert (found.strategy.words, found.strategy.workers, found.batch.effective) == (words, 4, effective)


def warnings(found: list[Problem]) -> list[tuple[str, str]]:
    return [(one.key.rpartition(".")[2], one.code) for one in found if one.severity == "warning"]


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({"host": "overlap"}, []),
        (
            {"rule": BACKUP, "damping": "inverse"},
            [("damping", "no-effect")],
        ),
        ({"rule": "sync", "damping": "none"}, []),
        ({"rule": "softsync", "damping": "inverse"}, []),
        ({"warmup_updates": 10, "limits": {"restarts": 1}}, []),
        (
            {"warmup_updates": 10, "limits": {"restarts": 1}, "workers": 1},
            [
                ("warmup_updates", "no-effect"),
                ("restarts", "no-effect"),
            ],
        ),
    ],
)
def test_settings_without_effect_warn(args: Any, expected: list[tuple[str, str]], description: Description) -> None:
    found = validate(Experiment.read(config(**args), description))
    assert warnings(found) == expected
    assert [one for one in found if one.severity == "error"] == []


@pytest.mark.parametrize(
    ("args", "key"),
    [
        ({"host": "overlap", "rule": "softsync"}, "host"),
        ({"host": "overlap", "damping": "drop_above"}, "host"),
        ({"host": "overlap", "record": "drift"}, "host"),
        ({"damping": "delay_compensation", "rule": "sync"}, "damping"),
    ],
)
def test_what_the_engine_refuses_is_said_before_it_starts(args: Any, key: str, description: Description) -> None:
    (found,) = validate(Experiment.read(config(**args), description))
    assert (found.code, found.severity) == ("contradiction", "error")
    assert found.key == f"trainer.strategy.init_args.{key}"
    rule, damping = make_rule(args.get("rule", "async")), make_damping(args.get("damping", "none"))
    rest = {"host": args.get("host", "inline"), "drift": args.get("record") == "drift"}
    made = Settings(rule, damping, **rest)
    with refused(f"contradiction {key}"):
        made.check(4)


def test_more_workers_than_cores_warn_where_the_machine_is_known(description: Description) -> None:
    assert validate(Experiment.read(config(), description), cores=4) == []
    (found,) = validate(Experiment.read(config(), description), cores=2)
    assert (found.key, found.severity) == ("trainer.devices", "warning")
    (found,) = validate(Experiment.read({**config(), "threads": 2}, description), cores=4)
    assert (found.key, found.message[-49:]) == ("threads", "4 workers with 2 threads each would share 4 cores")
