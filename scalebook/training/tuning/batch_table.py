"""What the largest-batch test prints: a line for each try, and the answer."""

from collections.abc import Sequence
from typing import Final

from scalebook.training.failures import FailureClass
from scalebook.training.tuning.batch_tries import Tried
from scalebook.training.tuning.bracket import Bracket

HEADER: Final = "  batch   global  result          ms/step  us/sample   samples/s  memory MB   left MB"
SATURATED: Final = 0.9
"""Share of the best throughput from which on a size counts as fast as any."""


def row(tried: Tried) -> str:
    """One try, in the columns of `HEADER`."""
    result = tried.failure or "fits"
    rate = tried.samples_per_second
    cells = [
        "" if tried.step_s is None else f"{tried.step_s * 1e3:,.1f}",
        "" if rate is None else f"{1e6 / rate:,.1f}",
        "" if rate is None else f"{rate:,.0f}",
        "" if tried.memory_mb is None else f"{tried.memory_mb:,.0f}",
        "" if tried.free_mb is None else f"{tried.free_mb:,.0f}",
    ]
    widths = (9, 10, 11, 10, 9)
    figures = "".join(f" {cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
    return f"{tried.batch_size:7,}  {tried.batch_size * tried.workers:7,}  {result:13}{figures}".rstrip()


def answer(done: Sequence[Tried], bracket: Bracket, workers: int, memory_mb: int | None) -> str:
    """What fits, why no more, what it leaves, and where throughput saturates."""
    best = next((tried for tried in reversed(done) if tried.batch_size == bracket.fits and tried.failure is None), None)
    if best is None:
        smallest = min(tried.batch_size for tried in done) if done else bracket.multiple
        return f"Nothing fits: even {smallest} per worker is too large. {_wall(done, memory_mb)}"
    lines = [f"Largest batch: {bracket.fits:,} per worker, {bracket.fits * workers:,} global."]
    if bracket.too_large is not None:
        lines.append(f"{bracket.too_large:,} does not fit. {_wall(done, memory_mb)}")
    elif best.training_samples is not None and bracket.fits + bracket.multiple > best.training_samples // workers:
        lines.append(f"The training set is the limit, not memory: it has {best.training_samples:,} samples.")
    else:
        lines.append("--most is the limit, not memory.")
    if best.free_mb is not None:
        lines.append(f"It leaves {best.free_mb:,.0f} MB in each process.")
    return " ".join(lines) + _saturation(done)


def _wall(done: Sequence[Tried], memory_mb: int | None) -> str:
    hit = sum(tried.failure == FailureClass.OUT_OF_MEMORY for tried in done)
    where = "the GPU" if memory_mb is None else f"{memory_mb:,} MB"
    return f"Out of memory ({where}) in {hit} of {len(done)} tries."


def _saturation(done: Sequence[Tried]) -> str:
    rates = {tried.batch_size: tried.samples_per_second for tried in done if tried.failure is None}
    known = {size: rate for size, rate in rates.items() if rate is not None}
    if len(known) < 2:
        return ""
    best = max(known.values())
    enough = min(size for size, rate in known.items() if rate >= SATURATED * best)
    return f"\nFrom {enough:,} for each worker on it is as fast as it gets: {best:,.0f} samples/s (within 10 %)."
