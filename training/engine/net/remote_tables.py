"""Sparse tables on a remote worker: it fetches rows as it needs them, as of the version that it holds.

The worker's own table takes no memory during training, and cannot be read. At the end the whole table is fetched in
pieces.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves
from typing_extensions import override

from scalebook.training.engine.net.channel import Channel
from scalebook.training.engine.net.raw_tensors import bytes_of
from scalebook.training.engine.net.table_calls import rows_at_once
from scalebook.training.engine.rules.argument_error import ArgumentError
from scalebook.training.engine.store.rebuilt_optimizer import parameters_of
from scalebook.training.engine.store.table_optimizer import is_table
from scalebook.training.engine.worker.client import Client
from scalebook.training.engine.worker.table_reads import TableReads

Refuse = Callable[[str, bool], None]
"""Raises ValueError for an operation; the flag says whether the operation only writes into the table."""
_VALUES: Final = frozenset({"H", "T", "data", "imag", "mH", "mT", "real"})
"""Properties that read the values."""
_METADATA: Final = re.compile(
    r"__len__|_has_compatible_shallow_copy_type|_?is_(?!nonzero).*|(empty|full|ones|rand|randn|zeros)_like|"
    r"new_(empty|full|ones|zeros)|data_ptr|(dense_|sparse_)?dim|element_size|get_device|ndimension|nelement|numel|"
    r"register_.*hook|requires_grad_|retain_grad|size|storage_offset|stride|untyped_storage"
)
_MOVES: Final = frozenset({"bfloat16", "contiguous", "cpu", "cuda", "double", "float", "half", "to", "type"})
"""Methods that return the tensor itself when it already is what they make."""


class RemoteTensorStub(Tensor):
    """A tensor whose values are on another node. So are those of its copies and of what is detached from it."""

    refuse: Refuse

    @classmethod
    @override
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs, name = kwargs or {}, func.__name__
        is_property = name in ("__get__", "__set__")
        passes = name == "__set__" or _METADATA.fullmatch(name) is not None
        if is_property:
            name = func.__self__.__name__
            passes |= name not in _VALUES
        with torch._C.DisableTorchFunctionSubclass():
            if not passes:
                mine = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, RemoteTensorStub)]
                if name in ("data", "detach"):
                    return _elsewhere(func(*args), mine[0].refuse, RemoteTensorStub)
                if name in _MOVES and (few := mine[0].new_empty(0)) is func(few, *args[1:], **kwargs):
                    return mine[0]
                writes = name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
                into = next(iter((*args, *kwargs.values())))
                for one in mine:
                    one.refuse(name.strip("_"), writes and one is into and len(mine) == 1)
            return func(*args, **kwargs)

    @override
    def __deepcopy__(self, memo: dict[int, Any]) -> "RemoteTensorStub":
        if id(self) not in memo:
            none = torch.zeros((1,) * self.dim(), dtype=self.dtype).expand(self.shape)  # without memory
            is_parameter = isinstance(self, Parameter)
            copy = Parameter(none, self.requires_grad) if is_parameter else none
            memo[id(self)] = _elsewhere(copy, self.refuse, type(self))
        copied: RemoteTensorStub = memo[id(self)]
        return copied

    @override
    def __reduce_ex__(self, protocol: Any) -> Any:
        self.refuse("pickle", False)

    @override
    def __repr__(self) -> str:  # type: ignore[override]  # torch's has an argument of its own
        return f"{type(self).__name__}({list(self.shape)}, {self.dtype})"


class RemoteParameterStub(RemoteTensorStub, Parameter):
    """The class of a table's parameter during training: the object stays the same. Another object in the module would
    give zeros, which nobody refuses to read, to the optimizer, the replica, a tied layer, and any older reference.

    torch allows changing a tensor's class, but documents it nowhere: `test_elsewhere.py` fails when it stops.
    """


def keep_away(parameter: Parameter, refuse: Refuse) -> None:
    """Refuse reads of the parameter's values until `give_back`."""
    _elsewhere(parameter, refuse, RemoteParameterStub)


def give_back(parameter: Parameter) -> None:
    """Allow reads again: the values are here."""
    if isinstance(parameter, RemoteParameterStub):
        cast(Any, parameter).__class__ = Parameter
        del parameter.refuse


def _elsewhere(tensor: Tensor, refuse: Refuse, kind: type[RemoteTensorStub]) -> RemoteTensorStub:
    tensor.__class__ = kind
    assert isinstance(tensor, RemoteTensorStub)
    tensor.refuse = refuse
    return tensor


def refuse_first(worker: int, optimizers: Sequence[Optimizer]) -> None:
    """ValueError for a remote worker 0 with sparse tables. Worker 0 sends the first parameters and takes snapshots, and
    tables travel in neither. In a run over several nodes worker 0 is on the shards' node."""
    tables = any(is_table(parameter) for optimizer in optimizers for parameter in parameters_of(optimizer))
    if worker == 0 and tables:
        raise ValueError("model: has sparse tables, but worker 0 does not run on the node that holds them.")


class RemoteTableReads(TableReads):
    """The reads of one optimizer's tables. `client` works on the mirror."""

    def __init__(self, channel: Channel, worker: int, client: Client) -> None:
        self._partition = client.host.partition
        super().__init__(worker, self._partition, client.replica, lambda: client.bases)
        self._channel, self._client, self._own = channel, client, client.replica
        self._plans = {table.place: table for table in self._partition.plan.tables}
        self.has_begun = False
        """Whether training has begun: what is written into a table from now on is not part of the first version."""

    @override
    def rows(self, place: int, rows: Tensor, newest: bool = False) -> Tensor:
        """Rows of the version held. `newest` is for the simulator, which runs on one node."""
        assert not newest, "rows of the newest version cannot be fetched from another node"
        weight = self._plans[place].columns.fields[0]
        came = torch.empty((len(rows), *weight.shape[1:]), dtype=weight.dtype)
        most = rows_at_once(self._plans[place])
        for start in range(0, len(rows), most):
            self._ask(place, rows[start : start + most].contiguous(), came[start : start + most])
        self.count(place, len(rows))
        return came

    def _ask(self, place: int, rows: Tensor, into: Tensor) -> None:
        self._channel.call(
            "rows", self._partition.number, place, len(rows), body=[bytes_of(rows)], into=lambda _: [bytes_of(into)]
        )

    @override
    def unchanged(self, place: int) -> int | None:
        """None: local memory never holds a version's rows."""
        return None

    def keep_away(self) -> None:
        """Refuse reads of tables that train: their local memory is empty. Frozen tables keep their values."""
        for place in self._own.tables - self._own.frozen:
            keep_away(self._own.parameters[place], partial(self._refuse, place))

    def give_back(self) -> None:
        """Allow reads again."""
        for place in self._own.tables:
            give_back(self._own.parameters[place])

    def _refuse(self, place: int, operation: str, only_writes: bool) -> None:
        if only_writes and not self.has_begun:
            return
        name = self._client.names[place]
        raise ArgumentError(
            "model-not-supported",
            "model",
            f"{name} is a table with sparse gradients, whose values are only on the first node during training, so "
            f"{operation} on another node would read zeros",
            "Set sparse=False, or read the table only where trainer.is_global_zero is true, or after fit.",
        )

    def fetch(self, places: Iterable[int] | None = None) -> None:
        """Fetch these tables (all: None) as a whole, as of the version held."""
        for shard in self._partition.shards:
            for table in shard.plan.tables:
                if shard.tables is None or (places is not None and table.place not in places):
                    continue
                weight = shard.tables.weight(table.index)
                for start in range(0, table.rows, rows_at_once(table)):
                    numbers = torch.arange(start, min(start + rows_at_once(table), table.rows))
                    weight[start : start + len(numbers)] = self.rows(table.place, numbers)

    def fetch_written(self) -> None:
        """Fetch the tables that somebody has written into here, to compare them."""
        if self._plans:
            self.fetch(self._own.tables.intersection(self._own.written(thorough=True)))
