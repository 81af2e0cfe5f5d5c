"""Checkpoints that any Trainer goes on from: what Lightning keeps under `loops`, in the terms of a single process.

Worker 0 counts its own batches, and its loader keeps what is left of the epochs that the workers have begun. A Trainer
with one process expects the batches of all, and no state of a loader that has none. So a file says it the latter way,
and what only our strategy can use lies under a key of our own.
"""

from typing import Any, Final

from training.strategies.steps import plain

KEY: Final = "async_ps"
_LOOPS: Final = "loops"
"""Of our key: what `loops` was like in worker 0."""
_PROGRESS: Final = "epoch_loop.batch_progress"
_LOADERS: Final = "combined_loader"


def for_any_trainer(checkpoint: dict[str, Any], workers: int, ours: dict[str, Any]) -> dict[str, Any]:
    """What is written, from what Lightning has gathered in worker 0; `ours` comes under our key, too."""
    checkpoint = plain(checkpoint)
    fit = checkpoint["loops"]["fit_loop"]
    progress, loaders = fit[_PROGRESS], fit["state_dict"].get(_LOADERS, [])
    kept: dict[str, Any] = {_PROGRESS: progress}
    done = whole = progress["current"]["ready"] * workers
    if len(loaders) == 1 and "left" in loaders[0]:  # a SharedLoader's
        kept[_LOADERS] = fit["state_dict"].pop(_LOADERS)
        done, whole = loaders[0]["done"], loaders[0]["whole"]
    current = whole if progress["is_last_batch"] else done
    before = max(0, fit["epoch_progress"]["current"]["ready"] - 1) * whole
    fit[_PROGRESS] = {
        **progress,
        "current": _moved(progress["current"], current),
        "total": _moved(progress["total"], before + current),
    }
    checkpoint[KEY] = {**ours, _LOOPS: kept}
    return checkpoint


def for_workers(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """What was read, as worker 0 had it, if it is a file of ours."""
    kept = checkpoint.get(KEY, {}).get(_LOOPS)
    if kept is None:
        return checkpoint
    fit = dict(checkpoint["loops"]["fit_loop"])
    fit[_PROGRESS] = kept[_PROGRESS]
    if _LOADERS in kept:
        fit["state_dict"] = {**fit["state_dict"], _LOADERS: kept[_LOADERS]}
    return {**checkpoint, "loops": {**checkpoint["loops"], "fit_loop": fit}}


def _moved(counts: dict[str, int], ready: int) -> dict[str, int]:
    """The same moment of a batch, when so many are ready."""
    return {name: max(0, ready - (counts["ready"] - value)) for name, value in counts.items()}
