"""Machines for tests: namespaces where they can be made; otherwise loopback, on which no link can be cut."""

from collections.abc import Iterator

import pytest

from tests.cluster.namespaces import Machines, Namespaces, namespaces, why_not


@pytest.fixture(scope="session")
def missing() -> str:
    """Why there are no namespaces; empty where there are."""
    return why_not()


@pytest.fixture
def two(missing: str) -> Iterator[Machines]:
    """Two machines, in namespaces where there are such."""
    if missing:
        yield Machines(2)
        return
    with namespaces(2) as made:
        yield made


@pytest.fixture
def apart(two: Machines, missing: str) -> Namespaces:
    """Two machines with a link between them; skipped where there are none."""
    if not isinstance(two, Namespaces):
        pytest.skip(missing)
    return two
