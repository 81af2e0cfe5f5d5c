"""How a process of ours imports what is large: torch, Lightning and MLflow."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache


@contextmanager
def importing() -> Iterator[None]:
    """No garbage is looked for while the block imports, nor ever in what is there after the first such block.

    Modules are a million objects, hardly any of them garbage: to look again and again takes a fifth of the imports'
    time. What is not looked at is not copied either, in processes that are forked from this one.
    """
    looks = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if looks:
            _freeze()
            gc.enable()


@cache
def _freeze() -> None:
    """Once in a process, and not in those forked from it. To ask each time how much is frozen already takes 0.1 s."""
    gc.freeze()
