"""Waiting for something that takes a while, with a deadline."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(condition: Callable[[], T], what: str, deadline_s: float) -> T:
    """The first true value of `condition`; TimeoutError that names `what` was waited for."""
    deadline = time.monotonic() + deadline_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {deadline_s:g} s for {what}")
        time.sleep(0.02)
    return value
