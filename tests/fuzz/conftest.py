"""The workspace of tests/training, with its store and description."""

from tests.training.conftest import description, empty_store, workspace

__all__ = ["description", "empty_store", "workspace"]
