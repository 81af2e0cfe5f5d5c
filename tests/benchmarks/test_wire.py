"""The benchmark of workers on other nodes, shortest: real processes on both sides."""

import pytest

from benchmarks.wire import remote


@pytest.mark.thorough
@pytest.mark.parametrize("tls", [False, True])
def test_two_workers_train_over_the_wire(tls: bool) -> None:
    measured = remote(0.3, tls=tls)
    assert measured.gradients_per_s > 0
    assert measured.updates_per_s == pytest.approx(measured.gradients_per_s, rel=0.05)
    assert 0 <= measured.staleness <= 3
    assert measured.cpu_ms > 0
