from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scalebook.training.engine.hyper import Encoder, decode, encode

NUMBERS = st.one_of(st.floats(allow_nan=False), st.integers(-(2**60), 2**60), st.booleans(), st.none(), st.text())
VALUES = st.one_of(NUMBERS, st.tuples(st.floats(allow_nan=False), st.floats(allow_nan=False)))


@given(st.lists(st.dictionaries(st.text(min_size=1).filter(lambda key: key != "params"), VALUES), max_size=3))
def test_every_value_travels_exactly(groups: list[dict[str, Any]]) -> None:
    again = decode(encode([{"params": [object()], **group} for group in groups]))
    assert again == groups
    assert [[type(v) for v in g.values()] for g in again] == [[type(v) for v in g.values()] for g in groups]


def test_a_tensor_of_one_element_keeps_type_and_shape() -> None:
    lr = torch.tensor([0.1], dtype=torch.float32)
    (group,) = decode(encode([{"params": [], "lr": lr}]))
    assert torch.equal(group["lr"], lr)
    assert group["lr"].dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_dtypes_travel(dtype: torch.dtype) -> None:
    """The optimizers kron and rose of pytorch_optimizer have such settings."""
    groups = [{"params": [], "compute_dtype": dtype, "betas": (dtype, 0.5)}]
    assert decode(encode(groups)) == [{"compute_dtype": dtype, "betas": (dtype, 0.5)}]


def test_what_cannot_travel_is_named() -> None:
    with pytest.raises(ValueError, match="optimizer: its setting 'schedule' is a function"):
        encode([{"params": [], "schedule": test_a_tensor_of_one_element_keeps_type_and_shape}])


def test_the_encoder_notices_every_change() -> None:
    encoder, lr = Encoder(), torch.tensor(0.5)
    group: dict[str, Any] = {"params": [], "lr": 0.1, "betas": (0.9, 0.99)}
    first = encoder([group])
    assert encoder([group]) is first
    group["lr"] = 0.2
    assert decode(encoder([group]))[0]["lr"] == 0.2
    group["lr"] = lr
    encoder([group])
    lr.fill_(0.25)
    assert decode(encoder([group]))[0]["lr"] == 0.25
    group["more"] = None
    assert "more" in decode(encoder([group]))[0]
