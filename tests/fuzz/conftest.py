"""The workspace of tests/training."""

from tests.training.conftest import workspace

__all__ = ["workspace"]
