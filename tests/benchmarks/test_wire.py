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


@pytest.mark.thorough
@pytest.mark.parametrize("tls", [False, True])
def test_a_gradient_of_a_given_size_costs_both_ends_something(tls: bool) -> None:
    measured = remote(0.5, 1, tls, megabytes=0.1)
    assert 0.05 < measured.cpu_ms < 2.2 * 1000 / measured.gradients_per_s + 10
