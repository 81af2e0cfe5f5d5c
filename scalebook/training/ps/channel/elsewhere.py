"""The weight of a sparse table on a machine that has none of it while it trains: who reads it is told so.

What there is to know without its values (shape, type, device, gradient) stays as it is, so that it is saved, moved,
counted and copied with the model like any parameter.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.utils._pytree import tree_leaves
from typing_extensions import override

Refuse = Callable[[str, bool], None]
"""ValueError for an operation; it is told whether that only writes into the table."""

_VALUES: Final = frozenset({"H", "T", "data", "imag", "mH", "mT", "real"})
"""Properties that read them."""
_METADATA: Final = re.compile(
    r"__len__|_has_compatible_shallow_copy_type|_?is_(?!nonzero).*|(empty|full|ones|rand|randn|zeros)_like|"
    r"new_(empty|full|ones|zeros)|data_ptr|(dense_|sparse_)?dim|element_size|get_device|ndimension|nelement|numel|"
    r"register_.*hook|requires_grad_|retain_grad|size|storage_offset|stride|untyped_storage"
)
_MOVES: Final = frozenset({"bfloat16", "contiguous", "cpu", "cuda", "double", "float", "half", "to", "type"})
"""They return the tensor itself where it is so already."""


class Elsewhere(Tensor):
    """A tensor whose values are on another machine. Copies and what is detached from it are the same."""

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
                mine = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Elsewhere)]
                if name in ("data", "detach"):
                    return _elsewhere(func(*args), mine[0].refuse, Elsewhere)
                if name in _MOVES and (few := mine[0].new_empty(0)) is func(few, *args[1:], **kwargs):
                    return mine[0]
                writes = name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
                into = next(iter((*args, *kwargs.values())))
                for one in mine:
                    one.refuse(name.strip("_"), writes and one is into and len(mine) == 1)
            return func(*args, **kwargs)

    @override
    def __deepcopy__(self, memo: dict[int, Any]) -> "Elsewhere":
        if id(self) not in memo:
            none = torch.zeros((1,) * self.dim(), dtype=self.dtype).expand(self.shape)  # without memory
            is_parameter = isinstance(self, Parameter)
            copy = Parameter(none, self.requires_grad) if is_parameter else none
            memo[id(self)] = _elsewhere(copy, self.refuse, type(self))
        copied: Elsewhere = memo[id(self)]
        return copied

    @override
    def __reduce_ex__(self, protocol: Any) -> Any:
        self.refuse("pickle", False)

    @override
    def __repr__(self) -> str:  # type: ignore[override]  # torch's has an argument of its own
        return f"{type(self).__name__}({list(self.shape)}, {self.dtype})"


class ParameterElsewhere(Elsewhere, Parameter):
    """What a table's parameter is meanwhile: the same object. Another in the module's place would leave zeros, which
    nobody refuses to read, to the optimizer, the replica, a tied layer, and whoever has it from before.

    torch lets a class be changed, and promises it nowhere: `test_elsewhere.py` fails on the day that it does not."""


def keep_away(parameter: Parameter, refuse: Refuse) -> None:
    """Let nobody read its values, until `give_back`."""
    _elsewhere(parameter, refuse, ParameterElsewhere)


def give_back(parameter: Parameter) -> None:
    """Its values are here."""
    if isinstance(parameter, ParameterElsewhere):
        cast(Any, parameter).__class__ = Parameter
        del parameter.refuse


def _elsewhere(tensor: Tensor, refuse: Refuse, kind: type[Elsewhere]) -> Elsewhere:
    tensor.__class__ = kind
    assert isinstance(tensor, Elsewhere)
    tensor.refuse = refuse
    return tensor
