import math

import pytest
import torch

from scalebook.training.engine import Settings, SharedRun
from scalebook.training.engine.coordination.measures import (
    Counts,
    MembershipChange,
    Pushes,
    PushRecord,
    StalenessHistogram,
    shares,
    weighted_mean,
    whole_drift,
)
from scalebook.training.engine.memory.region import (
    AGE,
    APPLIED,
    DRIFT,
    DRIFTS,
    FIRST_BIN,
    GAUGE,
    METER,
    ROW,
    SAMPLES,
    WAIT,
)


def test_statistics_of_a_known_histogram() -> None:
    histogram = StalenessHistogram(torch.tensor([[5, 3, 0, 0], [5, 5, 1, 1]]))
    assert histogram.total == 20
    assert histogram.mean() == (8 * 1 + 2 + 3) / 20
    assert [histogram.quantile(q) for q in (0.5, 0.9, 0.95, 1.0)] == [0, 1, 2, 3]
    assert histogram.max() == 3
    assert StalenessHistogram(torch.tensor([[2, 1, 2]])).quantile(0.5) == 1  # 2 of 5 are less than half


def test_statistics_before_the_first_update() -> None:
    histogram = StalenessHistogram(torch.zeros(2, 4, dtype=torch.int64))
    assert math.isnan(histogram.mean())
    assert (histogram.quantile(0.95), histogram.max(), histogram.total) == (0, 0, 0)


def test_workers_and_shards_are_kept_apart() -> None:
    run = SharedRun(3, Settings(shards=2))
    counters = run.control.partition_counters[0]
    counters.used[0] = 1
    first, second = counters.shards
    first.newest[0], second.newest[0] = 8 << 17, 7 << 17
    first.meters[1 * METER + APPLIED] = 4
    first.meters[1 * METER + FIRST_BIN + 2] = 4
    second.meters[2 * METER + APPLIED] = 5
    second.gauges[2 * GAUGE + AGE] = 0.5
    second.gauges[2 * GAUGE + DRIFT], second.gauges[2 * GAUGE + DRIFTS] = 6.0, 2.0
    run.control.set_counter(1, SAMPLES, 70)
    run.control.seconds[1 * ROW + WAIT] = 0.25
    assert run.counts() == Counts(7, 70)
    assert [(t.updates, t.samples, t.wait) for t in run.worker_times()] == [(0, 0, 0.0), (4, 70, 0.25), (0, 0, 0.0)]
    assert run.staleness().counts[:, :4].tolist() == [[0, 0, 0, 0], [0, 0, 4, 0], [0, 0, 0, 0]]
    rows = {(row.worker, row.shard): row for row in run.pushes()}
    assert len(rows) == 6
    assert (rows[2, 1].applied, rows[2, 1].age_s, rows[2, 1].drift) == (5, 0.1, 3.0)
    assert math.isnan(rows[0, 0].age_s)
    assert math.isnan(rows[1, 0].drift)


def test_the_drift_of_a_gradient_spans_all_shards() -> None:
    rows = [("a", 3.0, 30), ("a", 1.0, 10), ("b", 4.0, 5), ("b", None, 0)]
    assert whole_drift(rows) == math.hypot(2.5, 4.0)
    assert math.isnan(whole_drift([*rows, ("c", None, 0)]))
    assert math.isnan(whole_drift([("a", None, 3)]))
    assert weighted_mean([(math.nan, 0), (2.0, 1), (5.0, 2)]) == 4.0
    assert math.isnan(weighted_mean([]))


def test_shares_add_up_to_one() -> None:
    assert shares({"wait": 1.0, "compute": 3.0}) == {"wait": 0.25, "compute": 0.75}
    assert shares({"wait": 0.0}) == {}


def test_shares_are_of_one_worker_or_of_all() -> None:
    seconds = [
        {"compute": 3.0, "wait": 1.0, "communicate": 0.0, "data": 0.0, "updates": 9.0},
        {"compute": 1.0, "wait": 3.0, "communicate": 0.0, "data": 0.0, "updates": 9.0},
    ]
    found = PushRecord([], seconds)
    assert found.shares() == {"compute": 0.5, "wait": 0.5, "communicate": 0.0, "data": 0.0}
    assert found.shares(1)["wait"] == 0.75
    assert found.shares(2) == {}


def test_a_gradient_counts_once_however_many_shards_it_has() -> None:
    """Two optimizers, the first with two shards; ages are weighted by what was applied."""
    shards = [
        Pushes(0, 0, 0, 10, 2, 0, 0.1, 3.0),
        Pushes(0, 0, 1, 10, 0, 0, 0.1, 4.0),
        Pushes(0, 1, 0, 20, 1, 1, 0.4, 12.0),
        Pushes(1, 0, 0, 0, 0, 0, None, None),
    ]
    first, second = PushRecord([], [], shards).by_worker()
    assert (first.applied, first.dropped, first.duplicates, first.drift) == (30, 3, 1, 13.0)
    assert first.age_s == pytest.approx(0.25)
    assert (second.worker, second.applied, second.age_s, second.drift) == (1, 0, None, None)
    assert PushRecord([], [], shards).parts == 3


def test_the_mean_staleness_of_a_worker() -> None:
    record = PushRecord([[1, 2, 1], [0, 0, 0]])
    assert (record.mean_staleness(0), record.mean_staleness(1)) == (1.0, None)


def test_who_is_there_and_who_came_later() -> None:
    first = [MembershipChange(0, 1.0, True), MembershipChange(1, 1.0, True)]
    record = PushRecord([], comings=[*first, MembershipChange(2, 5.0, True), MembershipChange(1, 7.0, False)])
    assert record.there == {0, 2}
    assert [(one.worker, one.joined) for one in record.changes] == [(2, True), (1, False)]
    assert (PushRecord([]).there, PushRecord([]).changes) == (set(), [])
