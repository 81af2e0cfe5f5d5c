"""Ctrl+C for a command that runs within this process, which has imported all that a new one imports in 6 s."""

import signal
import threading
import time
from collections.abc import Callable

LOOK_EVERY_S = 0.05


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

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    watching = threading.Thread(target=watch)
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
        signal.signal(signal.SIGINT, before)
    assert not late.is_set(), f"not ready within {deadline_s:g} s"
    return code
