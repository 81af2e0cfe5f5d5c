import pytest

from tests.training.spec.engine import with_engine
from training.spec.description import Description


@pytest.fixture(scope="session")
def engine(description: Description) -> Description:
    """The description with a parameter server whose rule and damping are classes."""
    return with_engine(description)
