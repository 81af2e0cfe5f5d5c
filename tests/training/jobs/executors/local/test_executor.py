import pytest

from scalebook.training.jobs.executors.local.executor import LocalExecutor
from tests.training.jobs.executors.contract import ExecutorContract


class TestLocalExecutor(ExecutorContract):
    @pytest.fixture
    def executor(self) -> LocalExecutor:
        return LocalExecutor()
