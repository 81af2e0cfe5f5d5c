"""What all tests of the browser side share."""

from pathlib import Path

import pytest

MLFLOW_ON_SQLALCHEMY_2_1 = "ignore:The ``noload`` loader strategy is deprecated:sqlalchemy.exc.SADeprecationWarning"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(MLFLOW_ON_SQLALCHEMY_2_1))
