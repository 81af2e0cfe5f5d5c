"""Tests check what kind of mistake is reported, and where; the messages are held by docs/reference/refusals.md."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from scalebook.training.engine.rules.argument_error import ArgumentError


@contextmanager
def refused(mistake: str) -> Iterator[None]:
    """What is done within raises an ArgumentError with this code for this argument: `out-of-bounds rule.bound`."""
    with pytest.raises(ArgumentError) as raised:
        yield
    assert f"{raised.value.code} {raised.value.argument}" == mistake
