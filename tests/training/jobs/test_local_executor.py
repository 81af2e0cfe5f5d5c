import pytest

from scalebook.training.jobs.executor import LocalExecutor
from tests.training.jobs.contract import ExecutorContract


class TestLocalExecutor(ExecutorContract):
    @pytest.fixture
    def executor(self) -> LocalExecutor:
        return LocalExecutor()
