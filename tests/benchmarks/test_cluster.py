"""The benchmark of workers on other machines, shortest: real processes on both sides."""

import pytest

from benchmarks.cluster import far_away
from scalebook.training.engine.rules.settings import Settings


@pytest.mark.thorough
@pytest.mark.parametrize("tls", [False, True])
def test_two_workers_train_from_afar(tls: bool) -> None:
    measured = far_away(0.3, 2, Settings(), tls)
    assert measured.gradients_per_s > 0
    assert measured.updates_per_s == pytest.approx(measured.gradients_per_s, rel=0.05)
    assert 0 <= measured.staleness <= 3
    assert measured.cpu_ms > 0
