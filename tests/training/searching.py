"""A workspace whose supervisor runs the proxy for trials, and searches over its formula."""

from functools import partial
from typing import Any

import pytest

from scalebook.training.experiments.description import Description
from scalebook.training.search import search_requests
from scalebook.training.search.search_folder import ENDED, SearchFolder
from scalebook.training.search.study.study_reader import read_study
from scalebook.training.search.study.trials import TrialRecord
from scalebook.training.supervisor.search_drivers import DRIVER
from tests.training.benches import Bench, bench, wait_for

__all__ = ["bench"]

STAND_IN = "tests.training.search.standin:run"
BASE: dict[str, Any] = {
    "seed_everything": 1,
    "trainer": {"max_epochs": 4, "accelerator": "cpu"},
    "model": {"class_path": "scalebook.training.zoo.models.MLPClassifier"},
    "data": {"class_path": "scalebook.training.zoo.data.Digits", "init_args": {"batch_size": 64}},
    "optimizer": {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.1}},
}
SPACE = {"batch_size": {"powers_of_two": [16, 256]}, "learning_rate": {"log_uniform": [0.001, 1.0]}}


class Range:
    """Starts searches and waits for them."""

    def __init__(self, bench: Bench, description: Description) -> None:
        self.bench, self.description = bench, description

    def start(self, name: str = "a search", **body: Any) -> SearchFolder:
        told = {"config": BASE, "space": SPACE, "objective": "val/loss", "trials": 6, "sampler": "random", **body}
        return search_requests.start(self.bench.workspace, told, None, name=name, description=self.description)

    def until_ended(self, folder: SearchFolder) -> str:
        wait_for(lambda: folder.state() in ENDED, f"{folder.request().name} to end: {_log(folder)}")
        return folder.state()

    def run(self, name: str = "a search", **body: Any) -> tuple[SearchFolder, list[TrialRecord]]:
        """A search from its start to its end."""
        folder = self.start(name, **body)
        state = self.until_ended(folder)
        assert state in ("finished", "failed"), _log(folder)
        return folder, self.records(folder)

    def records(self, folder: SearchFolder) -> list[TrialRecord]:
        asked = folder.request()
        return read_study(asked.storage, asked.study, folder.spec(self.description))

    def until_done(self, folder: SearchFolder, trials: int) -> None:
        """Until so many trials have ended."""
        wait_for(partial(self._done, folder, trials), f"{trials} trials to end: {_log(folder)}")

    def _done(self, folder: SearchFolder, trials: int) -> bool:
        return sum(1 for one in self.records(folder) if one.state not in ("running", "waiting")) >= trials


def _log(folder: SearchFolder) -> str:
    return folder.log.read_text(encoding="utf-8") if folder.log.exists() else "no log"


@pytest.fixture
def driver(request: pytest.FixtureRequest) -> str:
    """The module that a supervisor starts for a search."""
    module: str = getattr(request, "param", DRIVER)
    return module


@pytest.fixture
def searches(bench: Bench, description: Description, driver: str) -> Range:
    bench.supervise(runner=STAND_IN, driver=driver)
    return Range(bench, description)
