from pathlib import Path

import pytest

CHEAP = ("test_refused", "test_refused_list", "test_threads")
"""Of these files a case takes no fit."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A case here is a whole fit, with this strategy or that, from this hook or that."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.path.stem not in CHEAP:
            item.add_marker(pytest.mark.alike)


@pytest.fixture(autouse=True)
def _one_thread(one_thread: None) -> None:
    """Every test here may fork."""
