"""Durations as text."""


def duration(seconds: float | None) -> str:
    """A measured duration: `0.4 s`, `12 s`, `3 min 05 s`, `2 h 10 min`; "" for None."""
    if seconds is None:
        return ""
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f} s"
    rounded = round(seconds)
    if rounded < 60:
        return f"{rounded} s"
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60:02d} s"
    return f"{rounded // 3600} h {rounded % 3600 // 60:02d} min"


def roughly(seconds: float) -> str:
    """An estimated duration: `40 s`, `3 min`, `2 h`."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 90 * 60 else f"{round(seconds / 3600)} h"
