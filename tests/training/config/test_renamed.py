from typing import Any

import pytest

from scalebook.training.config.description import Description
from scalebook.training.config.identity import config_hash
from scalebook.training.config.renamed import MOVED, first_paths

BEFORE: dict[str, Any] = {
    "model": {"class_path": "training.models.MLPClassifier", "init_args": {"hidden": 16}},
    "data": "training.data.Digits",
    "optimizer": {"class_path": "training.optimizers.LARS", "init_args": {"lr": 0.1}},
    "trainer": {
        "devices": 2,
        "strategy": {
            "class_path": "training.strategies.AsyncPS",
            "init_args": {
                "rule": {"class_path": "training.ps.rules.Bounded", "init_args": {"bound": 3}},
                "damping": {"class_path": "training.ps.damping.DropAbove", "init_args": {"limit": 2}},
            },
        },
    },
}


def now(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: now(item) for key, item in value.items()}
    if not isinstance(value, str):
        return value
    return next((new + value.removeprefix(old) for old, new in MOVED.items() if value.startswith(old)), value)


@pytest.mark.parametrize("path", ["torch.optim.SGD", "trainings.models.A", "mine.training.models.B", "PixelCNN"])
def test_what_is_not_ours_stays(path: str) -> None:
    assert first_paths({"class_path": path}) == {"class_path": path}


def test_hashes_stay_for_ever(description: Description) -> None:
    assert config_hash({"trainer": now(BEFORE["trainer"])}, description) == "1893459cb045"
