"""A shard's sparse tables: what readers of older versions find, and what a death in an update leaves."""

import itertools
import os
import traceback
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import SGD, Adagrad

from scalebook.training.engine import Settings, SharedRun
from scalebook.training.engine.memory import row_log
from scalebook.training.engine.store import table_shard
from scalebook.training.engine.store.optimizer_partition import allocate, make_partitions, plan_partitions
from scalebook.training.engine.store.shard import Shard
from scalebook.training.engine.store.table_optimizer import mark_table, rows_of
from scalebook.training.engine.trace import Origin

ROWS, WIDTH = 1000, 3
pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks")


def made(kind: str = "sgd", workers: int = 2) -> Shard:
    """A shard with one table of zeros; Adagrad's state is then what its rows show."""
    table = Parameter(torch.zeros(ROWS, WIDTH))
    mark_table(table)
    optimizer = SGD([table], lr=1.0) if kind == "sgd" else Adagrad([table], lr=1.0)
    run = SharedRun(workers, Settings())
    plans = plan_partitions(run, [optimizer])
    allocate(run, plans)
    (partition,) = make_partitions(run, plans, [optimizer], 0, 5.0)
    (shard,) = partition.shards
    shard.initialise([table.detach()])
    for worker in range(workers):
        shard.pin(worker)
    return shard


def update(shard: Shard, rows: list[int], worker: int = 0) -> None:
    """With gradients of ones in these rows."""
    origin = Origin(worker, shard.version + 1, shard.version, 0, 0.0)
    given = rows_of(torch.tensor(rows), torch.ones(len(rows), WIDTH), ROWS)
    with shard.applying:
        assert shard.apply([origin], [given], [{**shard.optimizer.param_groups[0]}], worker)
    shard.pin(worker)


def column(shard: Shard, version: int, rows: list[int]) -> list[float]:
    read: Tensor = shard.read(0, torch.tensor(rows), version)
    assert (read == read[:, :1]).all()
    return read[:, 0].tolist()


def test_a_reader_finds_the_rows_of_the_version_that_it_holds() -> None:
    shard = made()
    seen = {0: [0.0] * 5}
    for number, rows in enumerate([[1, 3], [3], [2, 999], [1, 3]], start=1):
        update(shard, rows)
        seen[number] = column(shard, number, [1, 2, 3, 4, 999])
    assert seen[3] == [-1, -1, -2, 0, -1]
    assert seen[4] == [-2, -1, -3, 0, -1]
    for version, values in seen.items():  # worker 1 still holds version 0
        assert column(shard, version, [1, 2, 3, 4, 999]) == values


def test_what_nobody_holds_is_forgotten_and_its_memory_used_again() -> None:
    shard = made()
    for _ in range(300):
        update(shard, [5, 6])
        shard.pin(1)
    log = shard.counters.log
    assert log[row_log.HEAD] == 300
    assert log[row_log.USED] <= 3
    assert log[row_log.KEPT] <= 2


def test_one_that_holds_a_version_for_too_long_reads_newer_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_shard, "LOGGED_LEAST", 0)  # then an eighth of the table: 125 rows
    shard = made()
    for _ in range(200):
        update(shard, [7])
    assert column(shard, 0, [7, 8]) == [-(200.0 - 125), 0.0]
    assert column(shard, 199, [7]) == [-199.0]


@pytest.mark.parametrize("moment", ["open", "rows", "publish", "close"])
def test_a_death_in_an_update_leaves_it_undone_or_whole(moment: str) -> None:
    """A process is killed in the middle of one; the next to have the lock goes on."""
    shard, other = made("adagrad"), made("adagrad")
    for one in (shard, other):
        update(one, [1, 2])
    killed = os.fork()
    if not killed:
        try:
            torch.set_num_threads(1)  # those of the parent are not here
            die_at(shard, moment)
            update(shard, [2, 3], worker=1)
        finally:
            traceback.print_exc()
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(killed, 0)[1]) == 9
    assert shard.version == (2 if moment == "close" else 1)
    if moment != "close":
        update(shard, [2, 3])
    update(other, [2, 3])
    assert column(shard, 1, [1, 2, 3]) == column(other, 1, [1, 2, 3])
    update(shard, [1, 2])
    update(other, [1, 2])
    assert column(shard, 2, [1, 2, 3]) == column(other, 2, [1, 2, 3])
    assert shard.tables is not None
    assert other.tables is not None
    for mine, theirs in zip(shard.tables.columns[0], other.tables.columns[0], strict=True):
        assert torch.equal(mine, theirs)
    assert [shard.counters.log[i] for i in (row_log.HEAD, row_log.OPEN)] == [3, 0]


def die_at(shard: Shard, moment: str) -> None:
    """Let this process end at a moment of its next update."""
    assert shard.tables is not None
    if moment == "rows":  # between those of the weight and those of the state
        write, calls = Tensor.index_copy_, itertools.count()

        def dies(*given: Any) -> Any:
            return os._exit(9) if next(calls) else write(*given)

        setattr(Tensor, "index_copy_", dies)  # noqa: B010  # mypy knows its signature
    elif moment == "publish":
        setattr(shard, "publish", lambda *given: os._exit(9))  # noqa: B010
    else:
        setattr(shard.tables._log, moment, lambda *given: os._exit(9))
