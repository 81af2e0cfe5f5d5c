"""What the engine's switches cost when they are off: too little to show in updates/s, so it is timed alone."""

import timeit
from types import SimpleNamespace
from typing import Any, Final

RUNS: Final = 200_000


def nanoseconds_per_push() -> float:
    """What a push to one shard spends on looking whether there is a trace and whether drift is measured.

    The same checks as in `Client.hand_in`, `Shard.apply` and `Shard._meter`, without all else.

    The smallest of five timings, as for any piece of code that nothing should disturb.
    """
    parts: Any = SimpleNamespace(hyper=None, drift=False, trace=None)
    origins = [object()]

    def checks() -> None:
        if parts.hyper is not None:
            parts.hyper.note()
        drifts = [parts.measure(origin) for origin in origins] if parts.drift else []
        if parts.trace is not None:
            parts.trace.record()
        for _ in zip(origins, drifts, strict=False):
            pass

    def nothing() -> None:
        pass

    best = [min(timeit.repeat(what, number=RUNS, repeat=5)) for what in (checks, nothing)]
    return 1e9 * (best[0] - best[1]) / RUNS


def sentence() -> str:
    """A sentence for below the table."""
    return f"`record`, switched off, takes {nanoseconds_per_push():.0f} ns of each push to a shard."
