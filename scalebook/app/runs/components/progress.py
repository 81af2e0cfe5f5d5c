"""How far a run is, in a bar and a few words."""

import streamlit as st

from scalebook.app.runs.services.runs import RunView
from scalebook.app.shared.words import figure
from scalebook.training.durations import duration
from scalebook.training.tracking import names


def draw(view: RunView, prefix: str = "") -> None:
    """The bar of a run that has not ended, with `prefix` before its words. Nothing for an ended one."""
    if not view.ended:
        st.progress(fraction(view), text=prefix + words(view))


def fraction(view: RunView) -> float:
    """The share of the run's budget that is used up, 0 to 1; 0 where it has no end or the run has not begun."""
    share = view.progress.fraction if view.progress else None
    return min(max(share or 0.0, 0.0), 1.0)


def words(view: RunView) -> str:
    """`training, 42 %, 12 s left · epoch 3 · 1,240 updates · 65 updates/s`; of a waiting run, why it waits."""
    progress = view.progress
    if view.state == "waiting":
        return view.reason or "waits for the supervisor to start it"
    if view.state == "stopping":
        return "stopping: it ends after this update, or is killed after a few seconds"
    if progress is None:
        return " · ".join(["starting", *([view.reason] if view.reason else [])])
    parts: list[str] = [progress.phase]
    if progress.fraction is not None:
        parts[0] += f", {progress.fraction:.0%}"
    if progress.left_s is not None:
        parts[0] += f", {duration(progress.left_s)} left"
    if progress.updates:
        parts.append(f"epoch {progress.epoch_under_way}")
        parts.append(f"{progress.updates:,} updates")
        if (rate := view.metrics.get(names.UPDATES_PER_SECOND)) is not None:
            parts.append(f"{figure(rate, 3)} updates/{'virtual ' if view.is_simulated else ''}s")
    return " · ".join([*parts, *([view.reason] if view.reason else [])])
