"""The parameter server over two machines, which are two processes of this one."""

from pathlib import Path
from typing import Any

import pytest
import torch

from scalebook.training.strategies import AsyncPS
from tests.training.strategies.machines import by_hand, free_port, slurm, together, torchrun
from tests.training.strategies.small import Diary, diaries, fit, seeded_model, trainer
from tests.training.strategies.small import weights as weights_of


@pytest.fixture(autouse=True)
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of these machines; the first makes it."""
    path = tmp_path / "state" / "key"
    monkeypatch.setenv("SCALEBOOK_KEY_FILE", str(path))
    return path


def trained(folder: Path, rule: str, settings: dict[str, Any], **trainers: Any) -> dict[str, Any]:
    made = trainer(folder, AsyncPS(rule, **settings), callbacks=[Diary(folder)], **trainers)  # type: ignore[arg-type]
    model = seeded_model()
    weights = fit(made, model)
    return {"weights": weights, "steps": made.global_step, "after": weights_of(model)}


def test_two_machines_are_one_to_the_last_bit(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    alone = trained(one, "sync", {}, devices=2)
    told = together(by_hand(), lambda: trained(two, "sync", {}, num_nodes=2), tmp_path)
    for machine in told:
        assert torch.equal(machine["weights"], alone["weights"])
        assert machine["steps"] == alone["steps"] == 12
    same = ("train", "val", "lrs", "updates", "histogram")
    pairs = zip(diaries(two), diaries(one), strict=True)
    assert all([a[key] == b[key] for key in same] for a, b in pairs)


@pytest.mark.parametrize("started", ["a task a machine", "a task a worker", "torchrun"])
def test_all_machines_end_with_the_last_version(started: str, tmp_path: Path) -> None:
    """Whoever starts them, and whatever the order in which their workers come."""
    environments = torchrun(free_port()) if started == "torchrun" else slurm(1 if "machine" in started else 2)
    told = together(environments, lambda: trained(tmp_path, "async", {}, num_nodes=2, devices=2), tmp_path)
    assert len(told) == len(environments)
    for machine in told:
        assert torch.equal(machine["weights"], told[0]["weights"])
        assert machine["steps"] == 24
    every = diaries(tmp_path)
    assert [one["updates"] for one in every] == [24] * 4
    assert sorted(sample for one in every for sample in one["train"]) == sorted(2 * list(range(96)))
