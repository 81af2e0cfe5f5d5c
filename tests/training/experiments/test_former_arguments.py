"""Arguments of version 0.1: an error that gives today's name, and the hashes of what replaced them."""

from typing import Any

import pytest

from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.former_arguments import NOW, WRITTEN_OUT, without_written_out
from scalebook.training.experiments.identity import config_hash
from scalebook.training.experiments.validation import validate


def strategy(**arguments: Any) -> dict[str, Any]:
    return {"trainer": {"devices": 2, "strategy": {"class_path": "AsyncPS", "init_args": arguments}}}


@pytest.mark.parametrize(("owner", "name"), [pair for pair in NOW if pair[0] != "ModelParallel"], ids=str)
def test_a_former_argument_is_one_error_that_gives_its_name_of_today(
    owner: str, name: str, description: Description
) -> None:
    arguments = {name: 2} if owner == "AsyncPS" else {"rule": {"class_path": owner, "init_args": {name: 2}}}
    found = [
        problem
        for problem in validate(Experiment.read(strategy(**arguments), description))
        if problem.key.endswith(f".{name}")
    ]
    assert [(problem.severity, problem.message, problem.fix) for problem in found] == [
        ("error", "is not an argument", NOW[owner, name])
    ]


def test_defaults_that_version_0_1_wrote_into_its_jobs_are_left_out() -> None:
    own = {"workers": 2, "rule": {"class_path": "Async", "init_args": {"push_every": 1, "pull_every": 1}}}
    done = without_written_out(strategy(**own, **WRITTEN_OUT))
    assert done == strategy(workers=2, rule={"class_path": "Async", "init_args": {}})
    assert without_written_out(done) == done


@pytest.mark.parametrize(
    "arguments",
    [{"overlap": True}, {"restarts": 2}, {"deadline_s": 60.0}, {"pull_codec": "int8", "pull_delta": False}],
    ids=str,
)
def test_what_would_be_something_else_stays_and_is_an_error(
    arguments: dict[str, Any], description: Description
) -> None:
    config = without_written_out(strategy(**arguments))
    assert config == strategy(**arguments)
    assert any(problem.code == "unknown-argument" for problem in validate(Experiment.read(config, description)))


@pytest.mark.parametrize(
    ("arguments", "before"),
    [
        ({"host": "overlap", "limits": {"restarts": 2, "deadline_s": 60}, "pull_codec": "topk"}, "e9d16d74648f"),
        ({"record": "updates"}, "6d13427b80e2"),
        ({"record": "drift"}, "73a5edf21af8"),
    ],
)
def test_hashes_are_those_of_the_older_spelling(
    arguments: dict[str, Any], before: str, description: Description
) -> None:
    assert config_hash(Experiment.read(strategy(**arguments), description)) == before


def test_pulls_by_int8_are_not_what_they_were(description: Description) -> None:
    """They were whole parameters, and are differences."""
    assert config_hash(Experiment.read(strategy(pull_codec="int8"), description)) != "671db2f69bcf"
