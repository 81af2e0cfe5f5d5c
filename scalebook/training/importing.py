"""How a process of ours imports what is large: torch, Lightning and MLflow."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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
            if not gc.get_freeze_count():
                gc.freeze()
            gc.enable()
