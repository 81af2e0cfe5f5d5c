"""Ctrl+C: for a command within this process, which has imported what a new one imports in 6 s, and for programs."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LOOK_EVERY_S = 0.05


@contextmanager
def hearing() -> Iterator[None]:
    """Programs that are started within hear Ctrl+C, also where a shell has these tests in its background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def interrupted(call: Callable[[], int], ready: Callable[[], bool], deadline_s: float) -> int:
    """The exit code of `call()`, in the main thread, which gets SIGINT as soon as `ready()` or after the deadline."""
    main, lock, is_over, late = threading.main_thread(), threading.Lock(), threading.Event(), threading.Event()
    assert threading.current_thread() is main
    assert main.ident is not None
    ident = main.ident

    def watch() -> None:
        until = time.monotonic() + deadline_s
        while not is_over.is_set() and not ready():
            if time.monotonic() > until:
                late.set()
                break
            time.sleep(LOOK_EVERY_S)
        with lock:
            if not is_over.is_set():
                signal.pthread_kill(ident, signal.SIGINT)

    watching = threading.Thread(target=watch)
    with hearing():
        watching.start()
        try:
            code = call()
            with lock:
                is_over.set()
        except KeyboardInterrupt:
            raise AssertionError("nobody has caught the interruption") from None
        finally:
            is_over.set()
            watching.join()
    assert not late.is_set(), f"not ready within {deadline_s:g} s"
    return code
