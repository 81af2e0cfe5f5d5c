"""CMA-ES without pickles."""

import importlib.util
import pickle
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("cmaes") is None:
    pytest.skip("the package cmaes is not installed", allow_module_level=True)

import optuna
from optuna.samplers import CmaEsSampler, RandomSampler

from scalebook.training.search.study import cma
from scalebook.training.search.study.cma import NumbersCmaEs
from scalebook.training.search.study.study import Study
from tests.training.search.studies import BATCH, RATE, journal, run, search


class Bomb:
    """Unpickled it makes a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return Path.touch, (self.file,)


def optimized(sampler: CmaEsSampler, trials: int) -> list[dict[str, Any]]:
    study = optuna.create_study(sampler=sampler)
    for _ in range(trials):
        trial = study.ask()
        x, y = trial.suggest_float("x", -3, 3), trial.suggest_int("y", 0, 9)
        study.tell(trial, (x - 1) ** 2 + (y - 4) ** 2)
    return [trial.params for trial in study.trials]


def test_draws_are_those_of_optunas_own_sampler() -> None:
    """Over six generations: whatever a state holds that matters is kept."""
    settings: dict[str, Any] = {"seed": 3, "warn_independent_sampling": False}
    theirs = optimized(CmaEsSampler(independent_sampler=RandomSampler(seed=4), **settings), 40)
    assert optimized(NumbersCmaEs(independent_sampler=RandomSampler(seed=4), **settings), 40) == theirs


def poisoned(tmp_path: Path, file: Path) -> Study:
    """A study in whose every trial something lies, under each name, that makes `file` when it is unpickled."""
    spec = search(BATCH, RATE, sampler="cma-es")
    study = Study.open(journal(tmp_path), "one", spec)
    storage = study._study._storage
    for number in range(9):
        asked = study.ask()
        for key in ("cma:optimizer:0", "cma:numbers:0"):
            storage.set_trial_system_attr(
                storage.get_trial_id_from_study_id_trial_number(study._study._study_id, asked.number),
                key,
                pickle.dumps(Bomb(file)).hex(),
            )
        study.finish(asked.number, [float(number)])
    return Study.open(journal(tmp_path), "one", spec)


def test_a_crafted_study_runs_nothing(tmp_path: Path) -> None:
    file = tmp_path / "it ran"
    study = poisoned(tmp_path, file)
    assert len(run(study, 8)) == 8
    assert not file.exists()
    pickle.loads(pickle.dumps(Bomb(file)))  # noqa: S301  # it would have
    assert file.exists()


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", "{}", '{"_mean": "x"}', '{"_mean": [1], "_sigma": 1, "_g": 1}', "[" * 5000, '{"_g": 1e999}'],
)
def test_a_state_that_is_none_counts_as_missing(text: str) -> None:
    key = "cma:numbers"
    told = cma._read({f"{key}:0": text}, key)
    import cmaes
    import numpy as np

    made = cmaes.CMA(mean=np.zeros(2), sigma=1.0)
    assert told is None or not cma._put(made, told)
    assert made.generation == 0
