from typing import Any

import pytest

from scalebook.training.experiments.data_paths import IMAGES, most_samples, training_samples
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.zoo.data import Digits


def test_the_size_of_the_data_is_what_it_is() -> None:
    assert IMAGES["Digits"] == len(Digits().read("train").labels)


@pytest.mark.parametrize(
    ("data", "about", "most"),
    [
        ("Digits", 1437, 1797),
        ({"class_path": "Digits", "init_args": {"limit": 100}}, 100, 100),
        ({"class_path": "Dataset", "init_args": {"path": "a.csv", "limit": 70_000}}, 70_000, 70_000),
        ({"class_path": "PhotoPatches"}, None, None),
        ("my.Own", None, None),
        ({"class_path": "my.Own", "init_args": {"limit": 5}}, 5, None),
    ],
)
def test_as_far_as_a_config_says(data: Any, about: int | None, most: int | None, description: Description) -> None:
    done = Experiment({"model": "MLPClassifier", "data": data}, description).to_run()
    assert most_samples(Experiment.read(done, description)) == most
    if about is not None:
        assert training_samples(Experiment.read(done, description)) == about
