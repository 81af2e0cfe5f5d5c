"""A rule and a damping of a user's: one class each is all that forms, validation, a run and its trace must be given.

What imports them is a process of its own: LightningCLI's parser finds all classes of a process.
"""

import json
from typing import Any

import pytest

from scalebook.training.base.files import yaml
from scalebook.training.base.trust import trust
from scalebook.training.base.workspace import Workspace
from scalebook.training.engine.rules.facts import DampingFacts, RuleFacts
from scalebook.training.engine.trace import read_head
from scalebook.training.experiments.catalogue import describe
from scalebook.training.experiments.classes import shortest_form
from scalebook.training.experiments.description import ClassInfo, Description, Field
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.validation import validate
from scalebook.training.jobs.job_requests import all_jobs
from scalebook.training.tracking import names
from tests.shared_files import Prepared
from tests.training.describing import fork_descriptions, forked
from tests.training.runs import config, reader

pytestmark = pytest.mark.long

MODULE = '''
from typing import Annotated

from scalebook.training.engine.rules.argument_limits import Above, AtLeast, Below
from scalebook.training.engine.rules.damping import Damping
from scalebook.training.engine.rules.update_rules import Rule


class Picky(Rule):
    """Every gradient is applied on arrival, unless it is too stale.

    Args:
        tolerance: Largest staleness that is applied.
    """

    words = "picky up to {tolerance}"

    def __init__(self, tolerance: Annotated[int, AtLeast(0)] = 1) -> None:
        self.tolerance = tolerance

    def accepts(self, arrival, view):
        return arrival.worker == 0 and arrival.staleness <= self.tolerance


class Quorum(Rule):
    """So many are averaged, from anybody."""

    gradients_per_update = "workers - absent"

    def __init__(self, absent: int = 1) -> None:
        self.absent = absent


class Root(Damping):
    """The learning rate divided by a root of the staleness."""

    def __init__(self, power: Annotated[float, Above(0), Below(2)] = 0.5) -> None:
        self.power = power

    def rate(self, stalenesses):
        return max(1.0, sum(stalenesses) / len(stalenesses)) ** -self.power
'''


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory, prepared: Prepared) -> tuple[Workspace, Description]:
    """A trusted folder with the module, and its description."""
    with pytest.MonkeyPatch.context() as patch:
        root = tmp_path_factory.mktemp("own")
        patch.setenv("SCALEBOOK_WORKSPACE", str(root))
        fork_descriptions(patch)
        (root / "own_policy.py").write_text(MODULE, encoding="utf-8")
        (root / "scalebook.toml").write_text('modules = ["own_policy"]\n', encoding="utf-8")
        workspace = Workspace(root)
        prepared.open(workspace)
        trust(workspace)
        return workspace, describe(workspace)


def server(**args: Any) -> dict[str, Any]:
    given = config({"class_path": "AsyncPS", "init_args": {"workers": 2, **args}}, lr=0.05)
    del given["trainer"]["devices"]
    return given


def options(description: Description, argument: str) -> dict[str, ClassInfo]:
    info = description.find("strategies", "AsyncPS")
    assert info is not None
    return {one.name: one for one in field(info, argument).options}


def field(info: ClassInfo, name: str) -> Field:
    return next(one for one in info.fields if one.name == name)


def test_the_form_offers_them_with_what_they_declare(told: tuple[Workspace, Description]) -> None:
    _, description = told
    assert description.problems == []
    assert list(options(description, "rule")) == ["Async", "Bounded", "Sync", "Softsync", "Picky", "Quorum"]
    picky, root = options(description, "rule")["Picky"], options(description, "damping")["Root"]
    assert (picky.class_path, picky.source, picky.config_value) == ("own_policy.Picky", "user", None)
    assert picky.summary == "Every gradient is applied on arrival, unless it is too stale."
    assert field(picky, "tolerance").help == "Largest staleness that is applied."
    assert picky.rule == RuleFacts("Picky", "picky up to {tolerance}", refuses=True)
    assert root.damping == DampingFacts("Root", scales=True)
    tolerance, power = field(picky, "tolerance"), field(root, "power")
    assert (tolerance.type, tolerance.minimum, tolerance.exclusive_minimum, tolerance.maximum) == (
        "int",
        0,
        False,
        None,
    )
    assert (power.minimum, power.exclusive_minimum, power.maximum, power.exclusive_maximum) == (0, True, 2, True)
    assert Description.from_json(description.to_json()) == description


def test_validation_words_and_sizes_know_them(told: tuple[Workspace, Description]) -> None:
    _, description = told
    mine = server(rule={"class_path": "Picky", "init_args": {"tolerance": 3}}, damping="Root")
    assert validate(Experiment.read(mine, description)) == []
    assert Experiment.read(mine, description).strategy.words == "picky up to 3, Root"
    quorum = server(rule="Quorum", workers=4)
    assert (
        Experiment.read(quorum, description).strategy.gradients,
        Experiment.read(quorum, description).batch.effective,
    ) == (3, 24)
    args = Experiment(mine, description).to_run()["trainer"]["strategy"]["init_args"]
    assert args["rule"] == {"class_path": "own_policy.Picky", "init_args": {"tolerance": 3}}
    info = description.find("strategies", "AsyncPS")
    assert info is not None
    assert shortest_form({"class_path": "own_policy.Root", "init_args": {"power": 0.5}}, field(info, "damping")) == {
        "class_path": "own_policy.Root"
    }


@pytest.mark.parametrize(
    ("args", "key", "message"),
    [
        ({"rule": {"class_path": "Picky", "init_args": {"tolerance": "x"}}}, "rule.init_args.tolerance", "'x' is not"),
        (
            {"rule": {"class_path": "Picky", "init_args": {"tolerance": -1}}},
            "rule.init_args.tolerance",
            "-1 is out of bounds",
        ),
        (
            {"damping": {"class_path": "Root", "init_args": {"power": 2.0}}},
            "damping.init_args.power",
            "2.0 is out of bounds",
        ),
        ({"rule": "Pickey"}, "rule", "unknown class 'Pickey'"),
        ({"rule": "Picky", "host": "overlap"}, "host", "is overlap, which cannot be combined with Picky"),
        ({"rule": "Quorum", "damping": "delay_compensation"}, "damping", "corrects single gradients, but Quorum"),
        (
            {"rule": {"class_path": "Quorum", "init_args": {"absent": 2}}},
            "rule.init_args.absent",
            "is 2, which would leave none of the 2 workers to wait for",
        ),
    ],
)
def test_a_mistake_with_them_is_named(
    args: dict[str, Any], key: str, message: str, told: tuple[Workspace, Description]
) -> None:
    (found,) = validate(Experiment.read(server(**args), told[1]))
    assert (found.key, found.severity) == (f"trainer.strategy.init_args.{key}", "error")
    assert found.message.startswith(message)


@pytest.mark.usefixtures("one_thread")
def test_a_run_asks_them_and_its_trace_names_them(
    told: tuple[Workspace, Description], monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, _ = told
    monkeypatch.setenv("SCALEBOOK_WORKSPACE", str(workspace.root))
    file = workspace.root / "x.yaml"
    rule = {"class_path": "Picky", "init_args": {"tolerance": 3}}
    file.write_text(yaml.dump(server(rule=rule, damping="Root", record="updates")), encoding="utf-8")
    done = forked("fit", "-c", str(file))
    assert done.returncode == 0, done.stderr
    (job,) = all_jobs(workspace)
    record = reader(workspace).run(job.id)
    assert record.tags[names.TAG_RULE] == "picky up to 3, Root"
    pushes = json.loads((job.path / names.PUSHES_JSON).read_text(encoding="utf-8"))["shards"]
    assert pushes[0]["applied"] + pushes[0]["dropped"] > 0
    assert pushes[1]["applied"] == 0
    assert pushes[1]["dropped"] > 0
    assert record.metrics[names.UPDATES] == pushes[0]["applied"]
    (found,) = job.path.rglob("trace.json")
    head = read_head(found.parent)
    assert (head.rule, head.damping) == ("Picky(tolerance=3)", "Root(power=0.5)")
