"""Random numbers that several in one process draw from in turn, each as if alone."""

import random
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from scalebook.training.engine.worker.worker_end import RandomStream
from scalebook.training.lightning.async_ps.sim_worker import NumpyStream, PythonStream


def gauss_of(seed: int) -> Callable[[], float]:
    draw = random.Random(seed)
    return lambda: draw.gauss(0, 1)


DRAWS: list[tuple[type[RandomStream], Callable[[], float], Callable[[int], Callable[[], float]]]] = [
    (PythonStream, lambda: random.gauss(0, 1), gauss_of),
    (NumpyStream, lambda: float(np.random.randn()), lambda seed: np.random.RandomState(seed).randn),
    (NumpyStream, np.random.rand, lambda seed: np.random.RandomState(seed).rand),
]


@pytest.fixture
def put_back() -> Iterator[None]:
    python, numpy = random.getstate(), np.random.get_state()
    yield
    random.setstate(python)
    np.random.set_state(numpy)


@pytest.mark.usefixtures("put_back")
@pytest.mark.parametrize(("kind", "draw", "alone"), DRAWS, ids=["python", "pairs", "numpy"])
def test_each_draws_as_if_alone(
    kind: type[RandomStream], draw: Callable[[], float], alone: Callable[[int], Callable[[], float]]
) -> None:
    """In an order by chance, with turns without a draw; pairs of normal numbers are left half used."""
    stream, order = kind(), random.Random(3)
    states = [stream.seeded(seed) for seed in range(3)]
    expected = [alone(seed) for seed in range(3)]
    for _ in range(200):
        who = order.randrange(3)
        stream.load(states[who])
        for _ in range(order.randrange(4)):
            assert draw() == expected[who]()
        states[who] = stream.state()
