import dataclasses

import numpy as np

from scalebook.training.experiments.search.space import Dimension
from scalebook.training.experiments.search.types import Objective, RateRule
from scalebook.training.search.map.landscape import (
    axes,
    combined,
    default_panels,
    kind,
    landscape,
    panels,
    range_of,
    value,
)
from scalebook.training.search.study.trials import TrialRecord
from tests.app import searches


def test_batch_and_rate_are_the_first_axes() -> None:
    found = searches.spec((searches.FEATURES, searches.STRATEGY, searches.RATE, searches.BATCH))
    assert axes(found) == ["batch_size", "learning_rate", "model.features"]


def test_one_process_is_one_panel_whatever_its_point_says_of_workers() -> None:
    found = searches.spec()
    told = searches.records(found, 200)
    parts = panels(told, found, ("strategy", "workers"))
    assert [name for name, _ in parts] == [
        "single",
        "ddp, 1 worker",
        "ddp, 2 workers",
        "async, 1 worker",
        "async, 2 workers",
    ]
    assert sum(len(mine) for _, mine in parts) == 200
    assert panels(told, found, ()) == [("", told)]


def test_a_panel_for_each_category_as_long_as_they_are_few() -> None:
    assert default_panels(searches.spec()) == ("strategy", "workers")
    many = Dimension("model.activation", "values", choices=tuple("abcd"))
    crowded = searches.spec((*searches.SPACE, many))
    assert combined(crowded, ("strategy", "workers", "model.activation")) == 24
    assert default_panels(crowded) == ("strategy",)
    assert default_panels(searches.spec((searches.BATCH, searches.RATE))) == ()


def test_the_map_of_a_search_shows_what_it_is_made_of() -> None:
    found = searches.spec((searches.BATCH, searches.RATE), pruner="none")
    told = searches.records(found, 600)
    part = landscape(told, found, "batch_size", "learning_rate", range_of(told, found))
    assert sum(len(mine) for mine in part.trials.values()) == 600
    assert part.wall is not None
    assert 5 / 6 < part.wall < 1.0, "512 fits, 1024 does not"
    assert all(one.point["batch_size"] == 1024 for one in part.trials["out of memory"])
    assert part.field is not None
    assert np.isnan(part.field.shade[:, part.field.x > 0.93]).all(), "nothing beyond the wall"
    assert len(part.ridge) == 6
    assert part.ridge[3, 1] > part.ridge[0, 1] + 0.15, "the best rate grows with the batch"


def test_the_lines_follow_the_rule_of_the_rate() -> None:
    space = (searches.BATCH, searches.RATE)
    free, ruled = searches.spec(space), searches.spec(space, rate=RateRule("linear", 256))
    slopes = [
        landscape([], one, "batch_size", "learning_rate", None).iso[0].y[1]
        - landscape([], one, "batch_size", "learning_rate", None).iso[0].y[0]
        for one in (free, ruled)
    ]
    assert slopes[0] > 0.1
    assert abs(slopes[1]) < 1e-9
    assert landscape([], free, "learning_rate", "batch_size", None).iso == []


def test_what_became_of_a_trial() -> None:
    told = TrialRecord(1, "infeasible", {}, failure="diverged")
    assert kind(told) == "diverged"
    assert kind(dataclasses.replace(told, failure="configuration")) == "infeasible"
    assert kind(TrialRecord(2, "failed", {}, failure="out of memory")) == "failed"


def test_a_missed_target_is_no_value() -> None:
    found = searches.spec(objectives=(Objective("seconds", True),))
    missed = TrialRecord(1, "finished", {"batch_size": 16, "learning_rate": 0.1}, values=(float("inf"),))
    assert value(missed) is None
    part = landscape([missed], found, "batch_size", "learning_rate", range_of([missed], found))
    assert list(part.trials) == ["failed"]
    assert part.field is None


def test_before_the_first_trial_there_is_nothing_but_axes() -> None:
    found = searches.spec()
    assert range_of([], found) is None
    part = landscape([], found, "batch_size", "learning_rate", None)
    assert part.trials == {}
    assert part.field is None
    assert len(part.ridge) == 0
    assert part.wall is None
