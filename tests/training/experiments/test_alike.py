"""What must be the same in the configs of all machines."""

from pathlib import Path
from typing import Any

from scalebook.training.experiments.identity import alike_digests


def config(**trainer: Any) -> dict[str, Any]:
    return {
        "model": {"class_path": "MLPClassifier", "init_args": {"hidden": 16}},
        "data": {"class_path": "Digits", "init_args": {"data_dir": "/a", "batch_size": 8}},
        "trainer": {"devices": 2, "max_epochs": 1, "logger": None, **trainer},
        "seed_everything": 1,
        "threads": 1,
    }


def test_every_value_has_its_own_by_its_plain_path() -> None:
    assert list(alike_digests(config())) == [
        "model.class_path",
        "model.hidden",
        "data.class_path",
        "data.batch_size",
        "trainer.max_epochs",
    ]


def test_callbacks_are_told_apart() -> None:
    stops = [{"class_path": "EarlyStopping", "init_args": {"monitor": "val/loss"}}]
    more = alike_digests(config(callbacks=stops))
    assert set(more) - set(alike_digests(config())) == {"trainer.callbacks.0.class_path", "trainer.callbacks.0.monitor"}


def test_a_value_s_digest_is_that_of_what_it_says() -> None:
    assert alike_digests({"a": 0.1, "b": Path("x")}) == alike_digests({"b": "x", "a": 0.1})
    assert alike_digests({"a": 0.1}) != alike_digests({"a": 0.2})
