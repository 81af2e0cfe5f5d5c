"""What holds for all tests."""

import ctypes
import gc
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from scalebook.training.experiments import catalogue
from scalebook.training.experiments.description import Description
from tests import examples as examples  # its profile is asked for on the command line
from tests.shared_files import Prepared, prepare
from tests.training.describing import forked_descriptions as forked_descriptions
from tests.training.jobs.fake_nvml import nvml as nvml

HUGE_PAGE: Final = 2 << 20
MADV_COLLAPSE: Final = 25  # asm-generic/mman-common.h; Linux 6.1
ANONYMOUS: Final = re.compile(r"([0-9a-f]+)-([0-9a-f]+) rw-p \S+ \S+ 0\s")

gc.disable()  # while modules are imported: nothing of them is garbage, and looking for it takes a third of the time


def pytest_collection_finish() -> None:
    """From here on the garbage collector looks only at what tests create, not at a million objects of modules; and a
    fork copies little of them."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(5_000, 20, 100)  # seldom: what tests make and keep was looked through for 7 % of their time
    _use_huge_pages()


def _use_huge_pages() -> None:
    """Put this process's private memory into huge pages, where the kernel can. Tests fork this process thousands of
    times: with all tests imported (650 MB) a fork and its end took 58 ms of CPU, and 16 ms in huge pages."""
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for region in ANONYMOUS.findall(Path("/proc/self/maps").read_text(encoding="utf-8")):
        first, end = (int(address, 16) for address in region)
        first = -(-first // HUGE_PAGE) * HUGE_PAGE
        if end - first >= HUGE_PAGE:
            madvise(first, (end - first) // HUGE_PAGE * HUGE_PAGE, MADV_COLLAPSE)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files come first, so that no worker is left with one at the end."""
    _sample(items)
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def _sample(items: list[Any]) -> None:
    """Mark as `thorough` what `make test` leaves out. Of a test that is marked `each_value` it runs as many cases as
    have each value of each parameter. Of one that is marked `sampled` it runs a third; the tests of a file take
    turns."""
    for cases in _tests(items, "each_value"):
        _leave_others(cases, _with_each_value(cases))
    turns: dict[Path, int] = defaultdict(int)
    for cases in _tests(items, "sampled"):
        file, count = cases[0].path, max(1, len(cases) // 3)
        if len(cases) > 1:
            _leave_others(cases, {(turns[file] + number) % len(cases) for number in range(count)})
            turns[file] += count


def _tests(items: list[Any], mark: str) -> Iterable[list[Any]]:
    """The cases, by test, that have this mark and are not left out yet."""
    tests: dict[str, list[Any]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker(mark) and not any(map(item.get_closest_marker, ("thorough", "drill"))):
            tests[item.nodeid.partition("[")[0]].append(item)
    return tests.values()


def _leave_others(cases: list[Any], kept: set[int]) -> None:
    for number, case in enumerate(cases):
        if number not in kept:
            case.add_marker(pytest.mark.thorough)


def _with_each_value(cases: list[Any]) -> set[int]:
    """Numbers of a few cases that together have all values. The next one is the first with most values not seen yet."""
    values = [{(name, repr(value)) for name, value in case.callspec.params.items()} for case in cases]
    missing, chosen = set[tuple[str, str]]().union(*values), set[int]()
    while missing:
        best = max(range(len(cases)), key=lambda number: len(values[number] & missing))
        missing -= values[best]
        chosen.add(best)
    return chosen


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
