"""What holds for all tests."""

import gc
import importlib
import logging
import os
import sys
from collections.abc import Iterator
from functools import cache

import pytest

from scalebook.training.experiments import catalogue
from scalebook.training.experiments.description import Description
from tests import examples as examples  # its profile is asked for on the command line
from tests import huge_pages, warm
from tests.covering import leave_others
from tests.describing import forked_descriptions as forked_descriptions
from tests.fake_nvml import nvml as nvml
from tests.prepared import Prepared, prepare, prepare_description
from tests.warm import forked_processes as forked_processes
from tests.warm import warm_process as warm_process

gc.disable()  # while modules are imported: nothing of them is garbage, and to look for it takes a third of the time


class _Stderr:
    """What is standard error when something is written."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def _log_to_stderr() -> None:
    """Libraries that were imported during collection keep what was standard error then for their log. In a fork that is
    closed: each line was an error with a traceback."""
    for reference in logging._handlerList:  # type: ignore[attr-defined]  # logging has no other way
        handler = reference()
        if type(handler) is logging.StreamHandler:
            handler.setStream(_Stderr())


def pytest_collection_finish(session: pytest.Session) -> None:
    """From here on garbage is looked for among what tests make, not among a million objects of modules; and what a fork
    copies of them is little."""
    if forks := session.config.getoption("--forks", 0):
        importlib.import_module("scalebook.training.lightning.processes.cuda_fork").prepare_for_forks()
        importlib.import_module("mlflow.store.tracking.sqlalchemy_store")  # 0.9 CPU-s for each who opens a store
        factory = session.config._tmp_path_factory  # type: ignore[attr-defined]  # pytest has no other way
        os.environ.setdefault("SCALEBOOK_PREPARED", str(factory.getbasetemp() / "prepared"))
        prepare_description(factory)
    _log_to_stderr()
    gc.freeze()
    gc.enable()
    gc.set_threshold(5_000, 20, 100)  # seldom: what tests make and keep was looked through for 7 % of their time
    if not forks:  # each of which does it
        huge_pages.collapse()
    if any("warm_process" in getattr(item, "fixturenames", ()) for item in session.items):
        warm.begin(session.config)


WAITING = frozenset(
    (
        "test_archive", "test_async_nodes_deaths", "test_breaking", "test_channel", "test_claim_locks",
        "test_code_of_runs", "test_collectives", "test_elastic", "test_generations", "test_judging", "test_kill",
        "test_metric_set", "test_node_monitors", "test_recording", "test_remote_end", "test_stillness",
        "test_supervisor_handle",
    )
)  # fmt: skip
"""Files that wait for more than 5 s for what they have started."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those of files that wait are marked. Long files first, so that none of them is what all wait for at the end: each
    is for one process."""
    named = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if named:
        raise pytest.UsageError(f"{named[0]}: an address is another in each process. Give the cases ids.")
    leave_others(items)
    for item in items:
        if item.path.stem in WAITING:
            item.add_marker(pytest.mark.waits)
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture(scope="session", autouse=True)
def _state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What a person decided about folders is kept outside of them: for tests not in this person's home."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="module", autouse=True)
def _mlflow_stores() -> Iterator[None]:
    """MLflow keeps an engine for each store of a process, with its connections: 1,134 descriptors by the last test."""
    yield
    if (stores := sys.modules.get("mlflow.store.tracking.sqlalchemy_store")) is not None:
        engines = stores.SqlAlchemyStore._engine_map
        while engines:
            engines.popitem()[1].dispose()


@pytest.fixture(autouse=True)
def _main_module() -> Iterator[None]:
    """Streamlit's AppTest leaves its page as `__main__`, which a process that is started later would run again."""
    before = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = before


@pytest.fixture(autouse=True)
def _data_loaders() -> Iterator[None]:
    """While a Trainer asks for loaders, Lightning has other methods in DataLoader and BatchSampler; where that fails it
    leaves them there, and loaders that are made later cannot be made again."""
    yield
    if (data := sys.modules.get("torch.utils.data")) is None:
        return
    classes = [data.DataLoader, data.BatchSampler]
    for made in classes:
        classes += made.__subclasses__()
        for name in ("__setattr__", "__delattr__", "__init__"):
            if f"__old{name}" in vars(made):
                setattr(made, name, getattr(made, f"__old{name}"))
                delattr(made, f"__old{name}")


@pytest.fixture(autouse=True)
def _umask() -> Iterator[None]:
    """Commands set their process's umask; called within a test they must not set it for the next one."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prepared]:
    """An empty store and a description, to be copied. That the store is of this MLflow is asked once, not whenever one
    is opened: MLflow runs the files of all its migrations to know it. So is which sources we have."""
    from mlflow.store.db import utils

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalogue, "_own_sources", cache(catalogue._own_sources))
        patch.setattr(utils, "_get_latest_schema_revision", cache(utils._get_latest_schema_revision))
        yield prepare(tmp_path_factory)


@pytest.fixture(scope="session")
def description(prepared: Prepared) -> Description:
    """Of a workspace without modules of a user's."""
    return Description.from_json(prepared.description.read_text(encoding="utf-8"))
