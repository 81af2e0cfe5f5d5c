import math

import torch

from training.ps.measures import StalenessHistogram
from training.ps.region import SAMPLES, UPDATES, Control


def test_statistics_of_a_known_histogram() -> None:
    histogram = StalenessHistogram(torch.tensor([[5, 3, 0, 0], [5, 5, 1, 1]]))
    assert histogram.total == 20
    assert histogram.mean() == (8 * 1 + 2 + 3) / 20
    assert [histogram.quantile(q) for q in (0.5, 0.9, 0.95, 1.0)] == [0, 1, 2, 3]
    assert histogram.max() == 3


def test_statistics_before_the_first_update() -> None:
    histogram = StalenessHistogram(torch.zeros(2, 4, dtype=torch.int64))
    assert math.isnan(histogram.mean())
    assert (histogram.quantile(0.95), histogram.max(), histogram.total) == (0, 0, 0)


def test_control_keeps_workers_apart() -> None:
    control = Control(workers=3, bins=4)
    control.set_word(1, UPDATES, 7)
    control.set_word(1, SAMPLES, 70)
    control.seconds[8 + 1] += 0.5
    control.histogram[4 + 2] += 1
    times = control.worker_times()
    assert [(t.updates, t.samples, t.wait) for t in times] == [(0, 0, 0.0), (7, 70, 0.5), (0, 0, 0.0)]
    assert control.column(UPDATES) == [0, 7, 0]
    assert control.staleness().counts.tolist() == [[0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
