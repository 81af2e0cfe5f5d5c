"""Sparse tables over the channel: the contract, and that no table travels or takes memory while it is trained."""

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from io import BytesIO
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import SGD, Optimizer

from scalebook.training.engine.launch import Launch
from scalebook.training.engine.net import remote_tables, table_calls
from scalebook.training.engine.net.table_calls import RowRoom
from scalebook.training.engine.net.wire import ProtocolError
from scalebook.training.engine.rules.settings import Settings
from scalebook.training.engine.store.store_layout import plan_partition
from scalebook.training.engine.store.table_optimizer import mark_tables
from scalebook.training.engine.worker.worker_end import JoinedEnd, WorkerEnd
from tests.training.engine import towers
from tests.training.engine.net.far import DEADLINE_S, far
from tests.training.engine.towers import Towers, gradient
from tests.training.engine.worker.end_contract import EndOf
from tests.training.engine.worker.peers import Make, counting, together
from tests.training.engine.worker.tables_contract import TablesContract, ends, trains

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore:Sparse invariant checks")]

ROWS, WIDTH = 200_000, 16
TABLE = 4 * ROWS * WIDTH
_ACKED_AT = 120  # of struct tcp_info: bytes sent that have arrived, and behind them bytes received


class TestRemoteTables(TablesContract):
    """Every worker but the first on another machine."""

    @property
    def settings(self) -> dict[str, Any]:
        return {"host": "inline"}

    @contextmanager
    def launched(self, launch: Launch, make: Make, model: Callable[[], Towers]) -> Iterator[EndOf]:
        with far(launch, make, model=model) as workers:

            def end_of(worker: int, deadline_s: float) -> WorkerEnd:
                return workers.worker(worker, deadline_s) if worker else launch.worker(worker, deadline_s)

            yield end_of

    def test_a_table_s_own_weight_is_refused_by_name_until_it_has_come(self) -> None:
        def reads(end: WorkerEnd, joined: JoinedEnd, model: Towers) -> None:
            weight, ids = model.words.weight, torch.tensor([1, 2])
            copy = deepcopy(model)
            state = model.state_dict()
            joined.start()
            joined.begin()
            gradient(model, 0)
            for read in (
                weight.norm,
                lambda: weight[ids],
                lambda: F.embedding(ids, weight, sparse=True),
                lambda: torch.ones(2, towers.WIDTH) @ weight.T,
                lambda: weight.data.abs().max().item(),
                lambda: torch._foreach_norm([torch.zeros(1), weight]),
                lambda: torch.zeros_like(weight).add_(weight.detach()),
                lambda: weight.data.fill_(7.0),
                lambda: weight.data.mul_(0.5),
                weight.double,
                lambda: copy.words(ids),
                lambda: torch.zeros_like(weight).copy_(state["words.weight"]),
                lambda: torch.save(weight, BytesIO()),
                lambda: weight.detach().numpy(),
            ):
                with pytest.raises(ValueError, match=r"model: words\.weight is a table .* Set sparse=False"):
                    read()
            with pytest.raises(RuntimeError, match=r"While copying .*words\.weight is a table"):  # torch's own words
                Towers().load_state_dict(state)
            assert ends(joined, model)[0].norm() > 0
            assert type(weight) is nn.Parameter
            with pytest.raises(ValueError, match=r"words\.weight"):
                copy.words(ids)

        self.trained([trains([]), reads])

    def test_what_needs_no_values_of_it_goes_on(self) -> None:
        def looks(end: WorkerEnd, joined: JoinedEnd, model: Towers) -> None:
            weight = model.words.weight
            assert (weight.shape, weight.dtype, str(weight.device)) == (
                (towers.ROWS, towers.WIDTH),
                torch.float32,
                "cpu",
            )
            assert (weight.numel(), weight.is_leaf, weight.requires_grad, len(weight)) == (400, True, True, towers.ROWS)
            assert isinstance(weight, nn.Parameter)
            assert weight in set(model.parameters())
            assert torch.zeros_like(weight).sum() == 0
            assert model.to("cpu").float().words.weight is weight
            assert model.state_dict()["words.weight"].shape == weight.shape
            assert deepcopy(model).words.weight.shape == weight.shape
            assert "[100, 4]" in repr(weight)
            SGD([weight], lr=0.1).zero_grad()
            with pytest.raises(ValueError, match="norm on another node"):
                weight.norm()
            trains([0])(end, joined, model)

        self.trained([trains([]), looks])


class TestRemoteTablesInSmallPieces(TestRemoteTables):
    """Seven rows a reply, where every batch reads more."""

    @pytest.fixture(autouse=True)
    def _few_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in (remote_tables, table_calls):
            monkeypatch.setattr(module, "rows_at_once", lambda table: 7)


def large() -> nn.EmbeddingBag:
    torch.manual_seed(0)
    return nn.EmbeddingBag(ROWS, WIDTH, mode="sum", sparse=True)


def sgd(parameters: Any) -> Optimizer:
    return SGD(list(parameters), lr=0.1)


def on_the_wire(connection: socket.socket) -> int:
    sent, received = struct.unpack_from(
        "QQ", connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256), _ACKED_AT
    )
    return int(sent + received)


def test_no_table_travels_while_it_is_trained_and_it_comes_whole_at_the_end() -> None:
    launch, here, there = Launch(2, Settings()), large(), large()
    steps, rows = 20, 64
    with far(launch, sgd, model=large) as workers:
        ends = [launch.worker(0, DEADLINE_S), workers.worker(1, DEADLINE_S)]
        joins = [partial(e.join, [sgd(m.parameters())], model=m) for e, m in zip(ends, (here, there), strict=True)]
        beside, joined = together(*joins)
        together(beside.start, joined.start)
        beside.begin()
        joined.begin()
        for step in range(steps):
            joined.clients[0].optimizer.zero_grad()
            there(torch.arange(step, ROWS, ROWS // rows)[None, :rows]).sum().backward()
            joined.clients[0].push()
        raw = workers.ends[1].channel._raw
        assert raw is not None
        a_row = 8 + 4 * WIDTH  # there and back: number and value each way
        assert steps * 2 * rows * a_row < on_the_wire(raw) < steps * (2 * rows * a_row + 4_000) + 100_000 < TABLE / 5
        for one in (beside, joined):
            one.finish()
        for one in (beside, joined):
            one.pull()
        joined.detach()
        assert on_the_wire(raw) > TABLE
        assert torch.equal(there.weight, here.weight)
        beside.detach()
    launch.close()


def test_worker_0_with_tables_is_beside_the_shards() -> None:
    launch, model = Launch(1, Settings()), large()
    with far(launch, counting) as workers:
        end = workers.worker(0, DEADLINE_S)
        with pytest.raises(ValueError, match="worker 0 does not run on the node that holds them"):
            end.join([sgd(model.parameters())], model=model)
    launch.close()


@pytest.mark.parametrize("numbers", [[-1, 2], [2, 10], [3, 3], [4, 2]])
def test_rows_that_are_none_of_the_table_or_not_in_order_end_the_connection(numbers: list[int]) -> None:
    model = nn.Embedding(10, 2, sparse=True)
    mark_tables(model)
    (table,) = plan_partition(sgd(model.parameters()), Settings(), 1).tables
    room = RowRoom(table)
    assert [len(part) for part in room.room(3)] == [16, 16]
    room._numbers[:2] = torch.tensor(numbers)
    with pytest.raises(ProtocolError, match="expected distinct rows of the table"):
        room.gradient(3)
    with pytest.raises(ProtocolError, match="is not a count"):
        room.room(12)
    assert room.gradient(0) is None


def test_a_table_that_nobody_trains_can_be_read() -> None:
    def frozen() -> Towers:
        model = Towers()
        model.words.weight.requires_grad_(False)
        return model

    launch, here, there = Launch(2, Settings()), frozen(), frozen()
    with far(launch, sgd, model=frozen) as workers:
        ends = [launch.worker(0, DEADLINE_S), workers.worker(1, DEADLINE_S)]
        joins = [partial(e.join, [sgd(m.parameters())], model=m) for e, m in zip(ends, (here, there), strict=True)]
        every = together(*joins)
        together(*[joined.start for joined in every])
        assert torch.equal(there.words.weight, Towers().words.weight)
        with pytest.raises(ValueError, match="norm on another node would read zeros"):
            there.bags.weight.norm()
        for joined in every:
            joined.detach()
    launch.close()
