"""Which runs belong to a cell: those of its name, and those that it had under another name."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.identity import config_hash
from scalebook.training.notebook import edit, history, store
from scalebook.training.notebook.cells import Notebook
from scalebook.training.notebook.export.experiments import experiment_part
from scalebook.training.notebook.notebook_changes import renamed
from scalebook.training.notebook.parse import parse
from scalebook.training.notebook.read_results import follow_renames, results
from scalebook.training.notebook.store import Stored
from scalebook.training.tracking.run_reader import RunReader
from scalebook.training.tracking.run_start import open_store
from tests.training.tracking.recorded import record

CONFIG: dict[str, Any] = {
    "model": {"class_path": "MLPClassifier"},
    "data": {"class_path": "Digits"},
    "optimizer": {"class_path": "SGD", "init_args": {"lr": 0.1}},
}


class Lab:
    """A notebook in which `twin`, which never ran, has the config of `side`, which ran two seeds."""

    def __init__(self, workspace: Workspace, description: Description) -> None:
        self.workspace, self.description = workspace, description
        self.reader = RunReader(workspace.tracking_uri())
        stored = store.create(workspace, "n")
        nb = edit.put_experiment(stored.notebook, "twin", CONFIG, 2)
        self.stored = store.save(stored, edit.put_experiment(nb, "side", CONFIG, 2))
        self.hash = config_hash(Experiment.read(CONFIG, description))
        for seed in (1, 2):
            self.run("side", seed)

    def run(self, cell: str, seed: int) -> None:
        client = open_store(self.workspace)
        record(client, notebook="n.md", cell=cell, seed=seed, values=[0.5], config_hash=self.hash)

    def have(self, nb: Notebook) -> dict[str, int]:
        """How many seeds of each experiment have a run of its config."""
        reader, description = self.reader, self.description
        by_cell = {one.name: results(reader, "n.md", one, description, nb) for one in nb.experiments()}
        return {
            name: sum(one.run is not None and not one.stale for one in by_seed) for name, by_seed in by_cell.items()
        }


@pytest.fixture
def lab(workspace: Workspace, description: Description) -> Lab:
    return Lab(workspace, replace(description, folder=str(workspace.root)))


def by_hand(lab: Lab) -> Stored:
    """`side` is renamed in an editor."""
    path = lab.stored.path
    path.write_text(path.read_text().replace("experiment=side", "experiment=mine"))
    return store.read(path)


def test_a_cell_that_was_renamed_in_the_file_keeps_its_runs_and_not_its_twin(lab: Lab) -> None:
    assert lab.have(lab.stored.notebook) == {"twin": 0, "side": 2}
    edited = by_hand(lab)
    assert lab.have(edited.notebook) == {"twin": 0, "mine": 2}
    again = store.save(edited, edit.rename(edited.notebook, "mine", "last"))
    assert lab.have(again.notebook) == {"twin": 0, "last": 2}
    part = experiment_part(
        lab.workspace, lab.reader, "n.md", again.notebook, again.notebook.experiments()[1], lab.description
    )
    assert len(part.runs) == 2


def test_runs_under_the_new_name_are_added_to_those_of_the_old_one(lab: Lab) -> None:
    edited = by_hand(lab)
    more = store.save(edited, edit.put_experiment(edited.notebook, "mine", CONFIG, 3))
    lab.run("mine", 3)
    assert lab.have(more.notebook) == {"twin": 0, "mine": 3}


def test_another_experiment_may_take_the_old_name(lab: Lab) -> None:
    nb = edit.rename(edit.remove(lab.stored.notebook, 0), "side", "mine")
    assert lab.have(edit.put_experiment(nb, "side", {**CONFIG, "threads": 3})) == {"mine": 2, "side": 0}


def test_runs_that_follow_a_rename_stay_when_the_history_is_trimmed(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    before = lab.stored.notebook
    changes: list[Callable[[], Notebook]] = [
        lambda: edit.rename(before, "side", "mine"),
        lambda: edit.put_experiment(edit.rename(before, "side", "mine"), "mine", {**CONFIG, "threads": 1}, 2),
    ]
    monkeypatch.setattr(history, "past_states", lambda notebook: [])
    for change in changes:
        after = change()
        follow_renames(lab.workspace, lab.reader, "n.md", before, after)
        if after.experiments()[1].config == CONFIG:
            assert lab.have(after) == {"twin": 0, "mine": 2}
        else:
            mine = after.experiments()[1]
            outdated = results(lab.reader, "n.md", mine, lab.description, after)
            assert [one.changed for one in outdated] == ["the config"] * 2
        follow_renames(lab.workspace, lab.reader, "n.md", after, before)  # an undo
        assert lab.have(before) == {"twin": 0, "side": 2}


def test_what_was_deleted_is_not_what_was_added() -> None:
    cells = "```yaml experiment={0}\nconfig: {{threads: {1}}}\n```\n"
    one, two = cells.format("one", 1), cells.format("two", 2)
    assert renamed(parse(one + two), parse(cells.format("uno", 1) + two)) == {"one": "uno"}
    assert renamed(parse(one + two), parse(two + cells.format("uno", 1))) == {"one": "uno"}
    assert renamed(parse(one + two), parse(two + cells.format("three", 3) + cells.format("four", 4))) == {}
    assert renamed(parse(one + two), parse(one)) == {}
    assert renamed(parse(one), parse(one + two)) == {}
