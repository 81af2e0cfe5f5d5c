import json
from pathlib import Path

import pytest
from lightning.pytorch import Trainer

from benchmarks.engine_lightning import QUIET, Clock
from benchmarks.engine_models import PERCEPTRON, TASKS, Task
from benchmarks.engine_systems import GOALS, SYSTEMS, choose


def names(only: list[str], everything: bool = False) -> list[str]:
    return [system.name for system in choose(SYSTEMS, only, everything)]


def test_names_are_unique_and_every_goal_names_rows() -> None:
    known = [system.name for system in SYSTEMS]
    assert len(set(known)) == len(known)
    assert {name for goal in GOALS for name in (goal.above, goal.below)} <= set(known)


def test_a_whole_name_selects_one_row_and_a_part_of_it_several() -> None:
    assert names(["AsyncPS x 2"]) == ["AsyncPS x 2"]
    assert names(["hogwild", "one process"]) == ["one process", "hogwild x 2"]
    assert set(names(["Adam"])) == {"one process, Adam", "AsyncPS x 1, Adam", "AsyncPS x 2, Adam"}


@pytest.mark.parametrize("model", TASKS)
def test_a_models_name_selects_its_scripts_and_its_runs(model: str) -> None:
    ways = ["one process", "two unconnected processes", "DDP x 2", "AsyncPS x 2"]
    runs = ["run, one process", "run, DDP x 2", "run, AsyncPS x 2"]
    assert names([model]) == [f"{model}: {way}" for way in ways + runs]


@pytest.mark.parametrize("task", [PERCEPTRON, *TASKS.values()])
@pytest.mark.filterwarnings("ignore:The 'train_dataloader' does not have many workers")
def test_a_task_trains_all_parameters(task: Task, tmp_path: Path) -> None:
    clock = Clock(str(tmp_path / "figures.json"), warm_up=1, steps=2)
    trainer = Trainer(accelerator="cpu", max_steps=4, callbacks=[clock], default_root_dir=tmp_path, **QUIET)
    model = task.model()
    trainer.fit(model, task.data())
    figures = json.loads(Path(clock.file).read_text())
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert figures["step_s"] > 0
    assert figures["cpu_s"] > 0


def test_rows_beyond_the_default_ones_are_measured_only_when_asked_for() -> None:
    assert set(names([])) < set(names([], everything=True)) == {system.name for system in SYSTEMS}


def test_a_name_that_fits_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="--only 'hogwyld': no row"):
        names(["hogwyld"])
